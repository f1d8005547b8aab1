//! Whether kapp-controller says that it is at work.

use sluice_crds::foreign::{App, condition};

/// Whether the status of an App says that its latest spec is being deployed.
///
/// The status says so until the attempt ends. It goes on saying so when the process of kapp-controller ends before that: the
/// next process leaves the App alone until its sync period is over (v0.53.1).
#[must_use]
pub fn is_underway(app: &App) -> bool {
    let Some(status) = &app.status else { return false };
    let stopped = app.spec.paused || app.spec.canceled || app.metadata.deletion_timestamp.is_some();
    !stopped
        && status.observed_generation == app.metadata.generation
        && condition::is_true(&status.conditions, "Reconciling")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::foreign::Condition;
    use sluice_crds::foreign::packaging::{AppSpec, AppStatus};

    use super::*;

    #[rstest]
    #[case::at_work(2, "Reconciling", false, true)]
    #[case::on_an_earlier_spec(1, "Reconciling", false, false)]
    #[case::done(2, "ReconcileSucceeded", false, false)]
    #[case::failed(2, "ReconcileFailed", false, false)]
    #[case::canceled(2, "Reconciling", true, false)]
    fn an_app(
        #[case] observed: i64,
        #[case] condition: &str,
        #[case] canceled: bool,
        #[case] underway: bool,
    ) {
        let mut app = App::default();
        app.metadata.generation = Some(2);
        app.spec = AppSpec {
            canceled,
            ..AppSpec::default()
        };
        app.status = Some(AppStatus {
            observed_generation: Some(observed),
            conditions: vec![Condition {
                type_: condition.into(),
                status: "True".into(),
                ..Condition::default()
            }],
            ..AppStatus::default()
        });
        assert_eq!(is_underway(&app), underway);
    }
}
