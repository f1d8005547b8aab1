//! Progress of the replacement of machines.

use std::fmt;

use sluice_crds::foreign::ControlPlane;

/// Progress of the replacement of the machines of a control plane or a pool, by the status of its object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Rollout {
    /// Desired number of machines; `None` if the object has no machines.
    pub wanted: Option<i32>,
    /// Number of machines.
    pub replicas: Option<i32>,
    /// Number of machines with the desired template; `None` if it is not reported.
    pub up_to_date: Option<i32>,
    /// Whether the status is from before the last change of the object.
    pub is_outdated: bool,
}

impl Rollout {
    /// Returns the progress of a control plane.
    #[must_use]
    pub fn of(control_plane: &ControlPlane) -> Self {
        let ControlPlane {
            metadata,
            spec,
            status,
        } = control_plane;
        let observed = status.observed_generation.zip(metadata.generation);
        Self {
            wanted: spec.replicas,
            replicas: status.replicas,
            up_to_date: status.up_to_date_replicas.or(status.updated_replicas),
            is_outdated: observed.is_some_and(|(observed, generation)| observed < generation),
        }
    }

    /// Whether all machines have the desired template. Machines that are not counted cannot be waited for.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_all = |count: Option<i32>| count.is_none_or(|count| Some(count) == self.up_to_date);
        !self.is_outdated && (self.up_to_date.is_none() || (is_all(self.replicas) && is_all(self.wanted)))
    }
}

/// Formats replaced and desired machines, `1/3`.
impl fmt::Display for Rollout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An outdated status counts machines of the earlier template.
        let replaced = self.up_to_date.filter(|_| !self.is_outdated).unwrap_or_default();
        let wanted = self.wanted.or(self.replicas).unwrap_or_default();
        write!(f, "{replaced}/{wanted}")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none_replaced(Some(3), Some(3), Some(0), false, false, "0/3")]
    #[case::some_replaced(Some(3), Some(4), Some(2), false, false, "2/3")]
    #[case::an_old_one_left(Some(3), Some(4), Some(3), false, false, "3/3")]
    #[case::all_replaced(Some(3), Some(3), Some(3), false, true, "3/3")]
    #[case::one_missing(Some(3), Some(2), Some(2), false, false, "2/3")]
    #[case::status_from_before(Some(3), Some(3), Some(3), true, false, "0/3")]
    #[case::without_machines(None, None, None, false, true, "0/0")]
    #[case::without_machines_and_outdated(None, None, None, true, false, "0/0")]
    #[case::scaled_to_none(Some(0), None, Some(0), false, true, "0/0")]
    fn progress(
        #[case] wanted: Option<i32>,
        #[case] replicas: Option<i32>,
        #[case] up_to_date: Option<i32>,
        #[case] is_outdated: bool,
        #[case] complete: bool,
        #[case] text: &str,
    ) {
        let rollout = Rollout {
            wanted,
            replicas,
            up_to_date,
            is_outdated,
        };
        assert_eq!(
            (rollout.is_complete(), rollout.to_string().as_str()),
            (complete, text)
        );
    }
}
