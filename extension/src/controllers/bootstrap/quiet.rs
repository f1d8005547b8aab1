//! For how long objects have not changed.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How long an App that is being deployed may show nothing. kapp writes a line at least every minute while it waits.
const QUIET: Duration = Duration::from_secs(90);

/// The version in which each object was seen last, and since when.
#[derive(Debug, Default)]
pub(super) struct Quiet(BTreeMap<String, (String, Instant)>);

impl Quiet {
    /// Whether the object has had this version for 90 s, since it was first seen or since this was last said.
    pub(super) fn is_over(&mut self, name: &str, version: &str, now: Instant) -> bool {
        match self.0.get_mut(name) {
            Some((known, since)) if known == version => {
                let over = now.duration_since(*since) >= QUIET;
                if over {
                    *since = now;
                }
                over
            }
            _ => {
                self.0.insert(name.to_owned(), (version.to_owned(), now));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_changes_is_never_quiet() {
        let (mut quiet, began) = (Quiet::default(), Instant::now());
        for step in 0..10_u32 {
            assert!(!quiet.is_over("one", &step.to_string(), began + QUIET * step));
        }
    }

    #[test]
    fn quiet_is_told_once_for_each_period() {
        let (mut quiet, began) = (Quiet::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let told: Vec<bool> = [0, 60, 89, 90, 100, 179, 180]
            .map(|seconds| quiet.is_over("one", "7", at(seconds)))
            .to_vec();
        assert_eq!(told, [false, false, false, true, false, false, true]);
        assert!(
            !quiet.is_over("other", "7", at(200)),
            "each object has its own time"
        );
    }
}
