//! Progress of kapp-controller according to the status of an App.

use jiff::Timestamp;
use sluice_crds::foreign::{App, condition};

/// Whether the status of an App reports that its latest spec is being deployed.
///
/// The status reports it until the attempt ends, and also after the kapp-controller process ends earlier: the next process ignores
/// the App until its sync period is over (v0.53.1).
#[must_use]
pub fn is_underway(app: &App) -> bool {
    let Some(status) = &app.status else { return false };
    let stopped = app.spec.paused || app.spec.canceled || app.metadata.deletion_timestamp.is_some();
    !stopped
        && status.observed_generation == app.metadata.generation
        && condition::is_true(&status.conditions, "Reconciling")
}

/// Returns the time of the last progress in the status of the App. It decides about app resyncs only; proofs use no clock.
#[must_use]
pub fn last_moved(app: &App) -> Option<Timestamp> {
    let status = app.status.as_ref()?;
    let steps = [&status.fetch, &status.template].into_iter().flatten();
    let deploy = status.deploy.iter();
    steps
        .flat_map(|step| [&step.started_at, &step.updated_at])
        .chain(deploy.flat_map(|deploy| [&deploy.started_at, &deploy.updated_at]))
        .flatten()
        .map(|time| time.0)
        .max()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;
    use sluice_crds::foreign::Condition;
    use sluice_crds::foreign::packaging::{AppSpec, AppStatus, DeployStatus, StepStatus};

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

    #[test]
    fn the_latest_step_dates_the_last_progress() {
        let at = |second| Some(Time(Timestamp::from_second(second).unwrap()));
        let mut app = App::default();
        assert_eq!(last_moved(&app), None);
        let mut status = AppStatus {
            fetch: Some(StepStatus {
                started_at: at(1),
                updated_at: at(2),
                ..StepStatus::default()
            }),
            ..AppStatus::default()
        };
        app.status = Some(status.clone());
        assert_eq!(last_moved(&app), Timestamp::from_second(2).ok());
        status.deploy = Some(DeployStatus {
            started_at: at(3),
            updated_at: at(5),
            ..DeployStatus::default()
        });
        status.template = Some(StepStatus {
            updated_at: at(4),
            ..StepStatus::default()
        });
        app.status = Some(status);
        assert_eq!(last_moved(&app), Timestamp::from_second(5).ok());
    }
}
