//! Detects that kapp has applied every object of a package and only waits.

use sluice_crds::foreign::App;
use sluice_crds::foreign::packaging::DeployStatus;

/// Whether a run fetched, templated and applied everything, and kapp only waits.
///
/// A package whose DaemonSet uses update strategy `OnDelete` cannot finish before new nodes exist, so nothing more can be required
/// until then. Until a step ends, the App shows its block from the previous run. The deploy block therefore has to be younger than
/// the fetch of this run, and unfinished: a finished one belongs to a run that ended. The blocks do not show the generation of their
/// run; see [`first_run`](super::first_run).
pub(super) fn all_changes_applied(app: &App) -> bool {
    let Some(status) = app.status.as_ref() else {
        return false;
    };
    let (Some(fetch), Some(template), Some(deploy)) = (&status.fetch, &status.template, &status.deploy)
    else {
        return false;
    };
    let (Some(began), Some(templated), Some(deployed)) =
        (&fetch.started_at, &template.updated_at, &deploy.started_at)
    else {
        return false;
    };
    fetch.exit_code == Some(0)
        && template.exit_code == Some(0)
        && templated.0 >= began.0
        && deployed.0 >= templated.0
        && !deploy.finished
        && kapp_only_waits(deploy)
}

/// Whether the last section of kapp's output is a wait that, with the earlier waits, covers all changes.
fn kapp_only_waits(deploy: &DeployStatus) -> bool {
    let output = deploy.stdout.as_deref().unwrap_or_default();
    output
        .lines()
        .filter_map(section)
        .next_back()
        .is_some_and(|section| match section {
            Section::Waiting { tracked, done, total } => tracked.checked_add(done) == Some(total),
            Section::Other => false,
        })
}

enum Section {
    Waiting { tracked: u32, done: u32, total: u32 },
    Other,
}

/// Parses a heading of kapp's output: `3:04:05AM: ---- waiting on 2 changes [1/3 done] ----`.
fn section(line: &str) -> Option<Section> {
    let heading = line.split_once("---- ")?.1.strip_suffix(" ----")?;
    Some(waiting(heading).unwrap_or(Section::Other))
}

fn waiting(heading: &str) -> Option<Section> {
    let (tracked, stats) = heading.strip_prefix("waiting on ")?.split_once(" changes [")?;
    let (done, total) = stats.strip_suffix(" done]")?.split_once('/')?;
    Some(Section::Waiting {
        tracked: tracked.parse().ok()?,
        done: done.parse().ok()?,
        total: total.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;
    use sluice_crds::foreign::packaging::{AppStatus, StepStatus};

    use super::*;

    const WAITING: &str = "Target cluster 'https://10.0.0.1:443'\n\
        2:19:21AM: ---- applying 3 changes [0/3 done] ----\n\
        2:19:21AM: update daemonset/agent (apps/v1) namespace: kube-system\n\
        2:19:21AM: ---- waiting on 3 changes [0/3 done] ----\n\
        2:19:22AM: ok: reconcile serviceaccount/agent (v1) namespace: kube-system\n\
        2:19:22AM: ---- waiting on 1 changes [2/3 done] ----\n\
        2:19:22AM: ongoing: reconcile daemonset/agent (apps/v1) namespace: kube-system\n\
        2:19:22AM:  ^ Waiting for 2 unavailable pods\n";

    fn time(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn waiting_app() -> App {
        let step = |exit_code| StepStatus {
            exit_code: Some(exit_code),
            ..StepStatus::default()
        };
        App {
            status: Some(AppStatus {
                fetch: Some(StepStatus {
                    started_at: Some(time(10)),
                    updated_at: Some(time(10)),
                    ..step(0)
                }),
                template: Some(StepStatus {
                    updated_at: Some(time(11)),
                    ..step(0)
                }),
                deploy: Some(DeployStatus {
                    started_at: Some(time(11)),
                    updated_at: Some(time(12)),
                    stdout: Some(WAITING.into()),
                    ..DeployStatus::default()
                }),
                ..AppStatus::default()
            }),
            ..App::default()
        }
    }

    type Edit = fn(&mut AppStatus);

    fn deploy(status: &mut AppStatus) -> &mut DeployStatus {
        status.deploy.as_mut().unwrap()
    }

    #[test]
    fn a_run_that_only_waits_is_applied() {
        assert!(all_changes_applied(&waiting_app()));
    }

    #[rstest]
    #[case::nothing_was_done(|s: &mut AppStatus| *s = AppStatus::default())]
    #[case::fetch_failed(|s: &mut AppStatus| s.fetch.as_mut().unwrap().exit_code = Some(1))]
    #[case::fetch_result_unreadable(|s: &mut AppStatus| s.fetch.as_mut().unwrap().exit_code = None)]
    #[case::template_failed(|s: &mut AppStatus| s.template.as_mut().unwrap().exit_code = Some(1))]
    #[case::template_of_the_run_before(|s: &mut AppStatus| s.template.as_mut().unwrap().updated_at = Some(time(9)))]
    #[case::deploy_of_the_run_before(|s: &mut AppStatus| deploy(s).started_at = Some(time(9)))]
    #[case::deploy_that_finished(|s: &mut AppStatus| deploy(s).finished = true)]
    #[case::no_output(|s: &mut AppStatus| deploy(s).stdout = None)]
    #[case::still_applying(|s: &mut AppStatus| deploy(s).stdout = Some("---- applying 3 changes [0/3 done] ----\n".into()))]
    #[case::applying_the_next_group(|s: &mut AppStatus| deploy(s).stdout.as_mut().unwrap().push_str("---- applying 1 changes [2/3 done] ----\n"))]
    #[case::waiting_with_more_to_apply(|s: &mut AppStatus| deploy(s).stdout = Some("---- waiting on 1 changes [1/3 done] ----\n".into()))]
    #[case::wait_ended(|s: &mut AppStatus| deploy(s).stdout.as_mut().unwrap().push_str("---- waiting complete [3/3 done] ----\n"))]
    #[case::numbers_beyond_any_package(|s: &mut AppStatus| deploy(s).stdout = Some("---- waiting on 4294967295 changes [1/3 done] ----\n".into()))]
    #[case::numbers_unreadable(|s: &mut AppStatus| deploy(s).stdout = Some("---- waiting on x changes [1/3 done] ----\n".into()))]
    fn everything_else_is_not(#[case] edit: Edit) {
        let mut app = waiting_app();
        edit(app.status.as_mut().unwrap());
        assert!(!all_changes_applied(&app));
    }
}
