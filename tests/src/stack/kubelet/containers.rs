//! States of the containers of a Pod, as a kubelet reports them. The name of an image decides: images of [`MISSING`] cannot be pulled, and
//! containers of images of [`CRASHING`] end again and again.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

/// Begin of the names of images that cannot be pulled, until a scenario sets a delay of their workload.
pub const MISSING: &str = "missing/";

/// Begin of the names of images whose containers end right after their start, until a scenario sets a delay of their workload.
pub const CRASHING: &str = "crashing/";

/// How often a container of [`CRASHING`] was started again.
const RESTARTS: u32 = 5;

/// Why containers do not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// An image cannot be pulled.
    Missing,
    /// A container ends again and again.
    Crashing,
}

impl Failure {
    /// That of the first container that fails.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        containers(pod).find_map(Self::of_container)
    }

    fn of_container(container: &Container) -> Option<Self> {
        let image = container.image.as_deref()?;
        if image.starts_with(MISSING) {
            Some(Self::Missing)
        } else if image.starts_with(CRASHING) {
            Some(Self::Crashing)
        } else {
            None
        }
    }

    /// Reason of a container that waits.
    fn reason(self) -> &'static str {
        match self {
            Self::Missing => "ImagePullBackOff",
            Self::Crashing => "CrashLoopBackOff",
        }
    }

    /// Whether the status of the Pod has it already.
    pub(super) fn is_reported(self, pod: &Pod) -> bool {
        let status = pod.status.as_ref();
        let mut containers = status
            .and_then(|status| status.container_statuses.as_ref())
            .into_iter()
            .flatten();
        containers.any(|container| {
            let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
            waiting.and_then(|waiting| waiting.reason.as_deref()) == Some(self.reason())
        })
    }

    /// The status of the Pod, as a patch.
    pub(super) fn status(self, pod: &Pod) -> Value {
        let phase = match self {
            Self::Missing => "Pending",
            Self::Crashing => "Running",
        };
        let failing: Vec<&str> = containers(pod)
            .filter(|container| Self::of_container(container).is_some())
            .map(|container| container.name.as_str())
            .collect();
        let unready = |kind: &str| {
            let message = format!("containers with unready status: {failing:?}");
            json!({"type": kind, "status": "False", "reason": "ContainersNotReady", "message": message})
        };
        let statuses: Vec<Value> = containers(pod)
            .map(|container| match Self::of_container(container) {
                Some(failure) => failure.container(container, pod),
                None => of_running(container, true),
            })
            .collect();
        json!({"status": {
            "phase": phase,
            "conditions": [
                {"type": "Initialized", "status": "True"},
                unready("ContainersReady"),
                unready("Ready"),
            ],
            "containerStatuses": statuses,
        }})
    }

    /// The state of a container that waits.
    fn container(self, container: &Container, pod: &Pod) -> Value {
        let name = &container.name;
        let mut status = of_running(container, false);
        let message = match self {
            Self::Missing => format!(
                "Back-off pulling image {:?}",
                container.image.as_deref().unwrap_or_default()
            ),
            Self::Crashing => {
                let pod = pod.metadata.name.as_deref().unwrap_or_default();
                format!("back-off 2m40s restarting failed container={name} pod={pod}")
            }
        };
        status["state"] = json!({"waiting": {"reason": self.reason(), "message": message}});
        if self == Self::Crashing {
            let ended = json!({"exitCode": 1, "reason": "Error", "startedAt": now(), "finishedAt": now()});
            status["lastState"] = json!({"terminated": ended});
        }
        status
    }
}

/// The states of the containers of a Pod that runs.
pub(super) fn running(pod: &Pod, is_ready: bool) -> Value {
    containers(pod)
        .map(|container| of_running(container, is_ready))
        .collect()
}

fn of_running(container: &Container, is_ready: bool) -> Value {
    let restarts = match Failure::of_container(container) {
        Some(Failure::Crashing) => RESTARTS,
        Some(Failure::Missing) | None => 0,
    };
    json!({
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": is_ready,
        "started": true,
        "restartCount": restarts,
        "state": {"running": {"startedAt": now()}},
    })
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| &spec.containers)
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(images: &[&str]) -> Pod {
        let containers: Vec<Value> = images
            .iter()
            .map(|image| json!({"name": "main", "image": image}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "one"},
            "spec": {"containers": containers},
        }))
        .unwrap()
    }

    /// The Pod with the status that is written for it.
    fn reported(pod: &Pod, status: &Value) -> Pod {
        let mut pod = pod.clone();
        pod.status = Some(serde_json::from_value(status["status"].clone()).unwrap());
        pod
    }

    #[test]
    fn containers_fail_by_the_name_of_their_image() {
        assert_eq!(Failure::of(&pod(&["registry.invalid/a:1"])), None);
        for (image, failure, phase, reason) in [
            ("missing/a:1", Failure::Missing, "Pending", "ImagePullBackOff"),
            ("crashing/a:1", Failure::Crashing, "Running", "CrashLoopBackOff"),
        ] {
            let pod = pod(&["registry.invalid/a:1", image]);
            assert_eq!(Failure::of(&pod), Some(failure));
            assert!(!failure.is_reported(&pod));
            let status = failure.status(&pod);
            assert_eq!(status["status"]["phase"], phase);
            let containers = &status["status"]["containerStatuses"];
            assert_eq!(containers[1]["state"]["waiting"]["reason"], reason);
            assert_eq!(
                (&containers[0]["ready"], &containers[1]["ready"]),
                (&json!(true), &json!(false))
            );
            assert!(failure.is_reported(&reported(&pod, &status)));
        }
    }

    #[test]
    fn containers_of_a_pod_that_runs_are_running() {
        let pod = pod(&["registry.invalid/a:1"]);
        let status = json!({"status": {"containerStatuses": running(&pod, true)}});
        let read = reported(&pod, &status)
            .status
            .unwrap()
            .container_statuses
            .unwrap();
        assert!(read[0].ready && read[0].restart_count == 0);
        assert!(read[0].state.as_ref().unwrap().running.is_some());
    }
}
