use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::run::{Gate, HeldCause, Hook, PackageRecord, PackageState, SCHEMA, UpgradeRecord};

use super::*;
use crate::{
    explanation::explain,
    protocol::{Failure, Server},
};

const APP: &str = "/apis/kappctrl.k14s.io/v1alpha1/namespaces/tkg-system/apps/one-antrea";
const INSTALL: &str = "/apis/packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packageinstalls/one-antrea";
const DAEMON_SETS: &str = "/apis/apps/v1/daemonsets";
const PODS: &str = "/api/v1/pods";
const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";
const MACHINES: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/machines";

const DENIED: &str = "kapp: Error: update configmap/a (v1) namespace: kube-system:\n  Updating resource configmap/a (v1) namespace: \
                      kube-system:\n    API server says:\n      admission webhook \"policy.example.com\" denied the request: no \
                      (reason: Forbidden)";
const TIMED_OUT: &str = "kapp: Error: Timed out waiting after 15m0s for resources: [daemonset/agent (apps/v1) namespace: kube-system]";

/// A record that holds the first gate for this reason, and waits for a package for the other one.
fn record(gate: (&str, &str), package: Option<&str>) -> UpgradeRecord {
    let package = package.map(|reason| PackageRecord {
        name: "antrea".to_owned(),
        version: "3.0.0".to_owned(),
        values_digest: String::new(),
        state: PackageState::Reconciling,
        reason: reason.to_owned(),
        message: String::new(),
        app_uid: None,
        app_generation: None,
        proven_readiness: None,
        first_seen_run: None,
        repairs: 0,
    });
    UpgradeRecord {
        schema: SCHEMA,
        from: Some("v1.35.4".to_owned()),
        to: "v1.36.3".to_owned(),
        gates: vec![Gate {
            hook: Hook::BeforeClusterUpgrade,
            version: "v1.36.3".to_owned(),
            open: false,
            reason: gate.0.to_owned(),
            message: gate.1.to_owned(),
            overridden_by: None,
        }],
        packages: package.into_iter().collect(),
        ..UpgradeRecord::default()
    }
}

fn probe() -> Probe {
    Probe {
        subject: "antrea 3.0.0".to_owned(),
        package: Some(ProbedPackage {
            server: Server::Workload,
            namespace: "tkg-system".to_owned(),
            name: "one-antrea".to_owned(),
        }),
        is_unreachable: false,
        namespace: "team-a".to_owned(),
        cluster: "one".to_owned(),
    }
}

/// Runs a probe against servers that answer by path and query. Returns the paths as well.
fn run(probe: Probe, server: impl Fn(&str, &str) -> Result<Value, Failure>) -> (Probed, Vec<String>) {
    let (mut probing, mut asked) = (Probing::new(probe), Vec::new());
    while let Some(ProbeRequest { request, longest, .. }) = probing.next_request() {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        asked.push(path.to_owned());
        let too_long = Failure {
            too_long: true,
            ..Failure::other(Server::Workload, "too long")
        };
        match server(path, query) {
            Ok(body) => {
                let text = body.to_string();
                let is_short = text.len() <= longest;
                probing.answered(if is_short { Ok(&text) } else { Err(&too_long) });
            }
            Err(failure) => probing.answered(Err(&failure)),
        }
    }
    (probing.end(), asked)
}

/// Returns the cause that these servers show while the package is reconciled.
fn cause(server: impl Fn(&str) -> Option<Value>) -> HeldCause {
    let record = record(("PackagesNotReady", ""), Some("AppReconciling"));
    let (probed, _) = run(probe(), |path, _| {
        Ok(server(path).unwrap_or_else(|| match path {
            APP => app(""),
            INSTALL => json!({"metadata": {}}),
            _ => list(&[]),
        }))
    });
    probed.cause(&explain(&record, None).unwrap(), &record).unwrap()
}

fn list(items: &[Value]) -> Value {
    json!({"kind": "List", "metadata": {}, "items": items})
}

fn app(error: &str) -> Value {
    let resources = json!({"label": "kapp.k14s.io/app=1795310150118415764", "namespaces": ["kube-system"]});
    json!({
        "metadata": {"generation": 2},
        "status": {
            "observedGeneration": 2, "conditions": [{"type": "ReconcileFailed", "status": "True"}], "usefulErrorMessage": error,
            "deploy": {"kapp": {"associatedResources": resources}},
        },
    })
}

fn daemon_set(strategy: &str, updated: i64) -> Value {
    json!({
        "metadata": {"name": "agent", "namespace": "kube-system"}, "spec": {"updateStrategy": {"type": strategy}},
        "status": {"updatedNumberScheduled": updated, "desiredNumberScheduled": 3},
    })
}

fn pod(status: &Value) -> Value {
    json!({"metadata": {"name": "agent-0", "namespace": "kube-system"}, "status": status})
}

fn waiting(reason: &str) -> Value {
    json!({"containerStatuses": [{"name": "agent", "state": {"waiting": {"reason": reason, "message": "back-off"}}}]})
}

fn unscheduled() -> Value {
    json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]})
}

fn machine(message: &str) -> Value {
    let deleting =
        json!({"type": "Deleting", "status": "True", "reason": "DrainingNode", "message": message});
    json!({"metadata": {"name": "md-0-a", "namespace": "team-a"}, "status": {"conditions": [deleting]}})
}

const DRAIN: &str = "Drain not completed yet:\n* Pod shop/db-0: cannot evict pod as it would violate the pod's disruption budget. The \
                     disruption budget db needs 3 healthy pods and has 3 currently";

const WITHOUT_NAMESPACE: &str = "* Pod db-0: cannot evict pod as it would violate the pod's disruption budget. The disruption budget db \
                                 needs 3 healthy pods and has 3 currently";

fn budget(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}, "status": {"disruptionsAllowed": 0, "expectedPods": 3}})
}

#[rstest]
#[case::webhook(DENIED, Cause::AdmissionDenied, "configmap/a (v1) namespace: kube-system")]
#[case::policy(
    "kapp: Error: create clusterrole/a (rbac.authorization.k8s.io/v1) cluster: Creating resource clusterrole/a \
     (rbac.authorization.k8s.io/v1) cluster: API server says: clusterroles \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with \
     binding 'b' denied request: no (reason: Invalid)",
    Cause::AdmissionDenied,
    "clusterrole/a (rbac.authorization.k8s.io/v1) cluster"
)]
#[case::pod_security(
    "kapp: Error: waiting on reconcile deployment/a (apps/v1) namespace: b: Finished unsuccessfully (Deployment has replica failure: \
     pods \"a-1\" is forbidden: violates PodSecurity \"restricted:latest\")",
    Cause::AdmissionDenied,
    "App tkg-system/one-antrea"
)]
#[case::quota(
    "kapp: Error: create secret/a (v1) namespace: b:\n  Creating resource: secrets \"a\" is forbidden: exceeded quota: q",
    Cause::AdmissionDenied,
    "secret/a (v1) namespace: b"
)]
#[case::right(
    "kapp: Error: create secret/a (v1) namespace: b: secrets \"a\" is forbidden: User \"system:serviceaccount:b:c\" cannot get it",
    Cause::Unknown,
    "App tkg-system/one-antrea"
)]
#[case::owner(
    "kapp: Error: Ownership errors:\n- Resource 'configmap/a (v1) namespace: b' is already associated with a different app 'c.app' \
     namespace: d (label 'kapp.k14s.io/app=1764000000')",
    Cause::OwnershipConflict,
    "configmap/a (v1) namespace: b"
)]
#[case::kind(
    "kapp: Error: Expected to find kind 'nonsense.example/v1/Nope', but did not:\n- Kubernetes API server did not have matching \
     apiVersion + kind\n- No matching CRD was found in given configuration",
    Cause::RemovedAPI,
    "nonsense.example/v1/Nope"
)]
#[case::mapping(
    "kapp: Error: no matches for kind \"PodSecurityPolicy\" in version \"policy/v1beta1\"",
    Cause::RemovedAPI,
    "policy/v1beta1/PodSecurityPolicy"
)]
#[case::downgrade(
    "Stopped installing matched version '1.0.0' since last attempted version '2.0.0' is higher.\nhint: Add annotation \
     packaging.carvel.dev/downgradable: \"\" to PackageInstall to proceed with downgrade",
    Cause::DowngradeRefused,
    "App tkg-system/one-antrea"
)]
#[case::timeout(
    TIMED_OUT,
    Cause::KappTimeout,
    "daemonset/agent (apps/v1) namespace: kube-system"
)]
#[case::timeout_of_one(
    "kapp: Error: waiting on reconcile deployment/a (apps/v1) namespace: b: Errored: Resource timed out waiting after 5m0s",
    Cause::KappTimeout,
    "deployment/a (apps/v1) namespace: b"
)]
fn an_error_of_kapp_names_a_cause(#[case] error: &str, #[case] name: Cause, #[case] object: &str) {
    let cause = cause(|path| (path == APP).then(|| app(error)));
    assert_eq!(
        (cause.name.as_str(), cause.object.as_str()),
        (name.as_str(), object)
    );
    assert!(
        !cause.evidence.is_empty() && !cause.evidence.contains('\n'),
        "{cause:?}"
    );
}

#[rstest]
#[case::failed("ReconcileFailed", 2, Cause::AdmissionDenied)]
#[case::not_deleted("DeleteFailed", 2, Cause::AdmissionDenied)]
#[case::of_an_earlier_run("Reconciling", 2, Cause::ImagePull)]
#[case::of_an_earlier_generation("ReconcileFailed", 1, Cause::ImagePull)]
fn only_the_error_of_the_last_run_counts(
    #[case] condition: &str,
    #[case] observed: i64,
    #[case] name: Cause,
) {
    let mut shown = app(DENIED);
    shown["status"]["conditions"][0]["type"] = json!(condition);
    shown["status"]["observedGeneration"] = json!(observed);
    let cause = cause(|path| match path {
        APP => Some(shown.clone()),
        // The label of the App counts in any case.
        PODS => Some(list(&[pod(&waiting("ErrImagePull"))])),
        _ => None,
    });
    assert_eq!(cause.name, name.as_str());
}

#[rstest]
#[case::daemon_set(DAEMON_SETS, daemon_set("OnDelete", 2), Some(Cause::OnDeleteDaemonSet))]
#[case::updated_daemon_set(DAEMON_SETS, daemon_set("OnDelete", 3), None)]
#[case::rolling_daemon_set(DAEMON_SETS, daemon_set("RollingUpdate", 2), None)]
#[case::image(PODS, pod(&waiting("ErrImagePull")), Some(Cause::ImagePull))]
#[case::container(PODS, pod(&waiting("CreateContainerConfigError")), Some(Cause::CrashLoop))]
#[case::creating(PODS, pod(&waiting("ContainerCreating")), None)]
#[case::scheduler(PODS, pod(&unscheduled()), Some(Cause::Unschedulable))]
#[case::drain(MACHINES, machine(DRAIN), Some(Cause::DisruptionBudget))]
#[case::slow_drain(MACHINES, machine("deletionTimestamp set, but still not removed"), None)]
#[case::budget_without_drain(BUDGETS, budget("shop", "db"), None)]
fn an_object_shows_a_cause(#[case] at: &str, #[case] object: Value, #[case] name: Option<Cause>) {
    let cause = cause(|path| (path == at).then(|| list(std::slice::from_ref(&object))));
    assert_eq!(cause.name, name.unwrap_or(Cause::Unknown).as_str());
}

#[rstest]
#[case::of_the_pods(DRAIN, &[("other", "db"), ("shop", "db")], "PodDisruptionBudget shop/db")]
#[case::without_a_list(DRAIN, &[("other", "db")], "PodDisruptionBudget shop/db")]
#[case::among_others(
    "Drain not completed yet (started at 2026-10-09T16:13:59Z):\n* Pod kube-system/dns-0: deletionTimestamp set, but still not removed from \
     the Node\n* Pods shop/db-0, shop/db-1, shop/db-2, ... (3 more): cannot evict pod as it would violate the pod's disruption budget. The \
     disruption budget db needs 20 healthy pods and has 20 currently\n* Pod web/a-0: failed to evict Pod, no\nAfter above Pods have been \
     removed from the Node, the following Pods will be evicted: other/b-0",
    &[("other", "db")],
    "PodDisruptionBudget shop/db"
)]
#[case::processed(
    "* Pod shop/db-0: cannot evict pod as it would violate the pod's disruption budget. The disruption budget db is still being processed \
     by the server.",
    &[],
    "PodDisruptionBudget shop/db"
)]
#[case::only_name(WITHOUT_NAMESPACE, &[("shop", "db"), ("shop", "web")], "PodDisruptionBudget shop/db")]
#[case::two_of_the_name(WITHOUT_NAMESPACE, &[("shop", "db"), ("other", "db")], "PodDisruptionBudget db")]
#[case::only_namespace(
    "* Pod shop/db-0: cannot evict pod as it would violate the pod's disruption budget.",
    &[("other", "web")],
    "Machine team-a/md-0-a"
)]
fn the_budget_that_stops_a_drain_is_named(
    #[case] message: &str,
    #[case] budgets: &[(&str, &str)],
    #[case] object: &str,
) {
    let cause = cause(|path| match path {
        MACHINES => Some(list(&[machine(message)])),
        BUDGETS => {
            let budgets: Vec<Value> = budgets
                .iter()
                .map(|(namespace, name)| budget(namespace, name))
                .collect();
            Some(list(&budgets))
        }
        _ => None,
    });
    assert_eq!(
        (cause.name.as_str(), cause.object.as_str()),
        ("DisruptionBudget", object)
    );
}

#[rstest]
#[case::none("", Cause::DisruptionBudget)]
#[case::timeout(TIMED_OUT, Cause::DisruptionBudget)]
#[case::other("ytt: Error: no such key", Cause::Unknown)]
fn another_error_precedes_a_drain(#[case] error: &str, #[case] name: Cause) {
    let cause = cause(|path| match path {
        APP => Some(app(error)),
        MACHINES => Some(list(&[machine(DRAIN)])),
        _ => None,
    });
    assert_eq!(cause.name, name.as_str());
    let mut objects = HeldObjects::default();
    objects.add_machine(&serde_json::from_value(machine(DRAIN)).unwrap());
    let record = record(("PackagesNotReady", ""), Some("AppReconciling"));
    let mut texts = Texts::default();
    texts.add("App tkg-system/one-antrea", error);
    let wait = explain(&record, None).unwrap();
    assert_eq!(classify(&wait, &texts, &objects).name, name.as_str());
}

#[test]
fn causes_have_an_order() {
    let mut evidence: Vec<(&str, Value, Cause)> = vec![
        (APP, app(DENIED), Cause::AdmissionDenied),
        (
            DAEMON_SETS,
            list(&[daemon_set("OnDelete", 0)]),
            Cause::OnDeleteDaemonSet,
        ),
        (
            PODS,
            list(&[
                pod(&unscheduled()),
                pod(&waiting("CrashLoopBackOff")),
                pod(&waiting("ImagePullBackOff")),
            ]),
            Cause::ImagePull,
        ),
        (
            PODS,
            list(&[pod(&unscheduled()), pod(&waiting("CrashLoopBackOff"))]),
            Cause::CrashLoop,
        ),
        (MACHINES, list(&[machine(DRAIN)]), Cause::DisruptionBudget),
        (PODS, list(&[pod(&unscheduled())]), Cause::Unschedulable),
        (APP, app(TIMED_OUT), Cause::KappTimeout),
    ];
    while let Some((_, _, expected)) = evidence.first() {
        let expected = *expected;
        let found = cause(|path| {
            let mut of_path = evidence.iter().filter(|(at, ..)| *at == path);
            of_path.next().map(|(_, body, _)| body.clone())
        });
        assert_eq!(found.name, expected.as_str());
        evidence.remove(0);
    }
    assert_eq!(cause(|_| None).name, Cause::Unknown.as_str());
}

#[rstest]
#[case::paused(("PackagesNotReady", ""), Some("AppPaused"), Some(Cause::PackagePaused), "antrea 3.0.0")]
#[case::constraint(
    ("PackageExcludesKubernetes", "Package antrea.3.0.0 allows Kubernetes <1.36, not v1.36.3"),
    None,
    Some(Cause::PackageExcludesKubernetes),
    "Package antrea.3.0.0"
)]
#[case::silent(
    ("WorkloadUnreachable", "the workload API server does not respond"),
    None,
    Some(Cause::WorkloadUnreachable),
    "workload API server"
)]
#[case::release(("TKRNotFound", "no release"), None, Some(Cause::Unknown), "")]
#[case::package(("PackagesNotReady", ""), Some("AppReconciling"), None, "")]
#[case::nodes(("PackagesNotSettled", ""), None, None, "")]
fn a_hold_reason_shows_a_cause(
    #[case] gate: (&str, &str),
    #[case] package: Option<&str>,
    #[case] name: Option<Cause>,
    #[case] object: &str,
) {
    let record = record(gate, package);
    let wait = explain(&record, None).unwrap();
    let found = of_reason(&wait);
    let expected = name.map(|name| (name.as_str(), object));
    assert_eq!(
        found
            .as_ref()
            .map(|cause| (cause.name.as_str(), cause.object.as_str())),
        expected
    );
    // Objects of the package change nothing about it.
    if let Some(cause) = found {
        let mut texts = Texts::default();
        texts.add("App tkg-system/one-antrea", DENIED);
        assert_eq!(classify(&wait, &texts, &HeldObjects::default()), cause);
    }
    let is_probed_for = name.is_none() || name == Some(Cause::WorkloadUnreachable);
    assert_eq!(is_probed(&wait), is_probed_for);
}

#[rstest]
#[case::name(
    None,
    None,
    "client error (Connect): dns error: failed to lookup address information",
    "DNS: "
)]
#[case::port(
    None,
    None,
    "client error (Connect): tcp connect error: Connection refused",
    "connect: "
)]
#[case::certificate(
    None,
    Some("invalid peer certificate: Expired"),
    "client error (Connect)",
    "TLS: "
)]
#[case::proxy(
    None,
    Some("the proxy does not answer: no head in time"),
    "client error (Connect)",
    "connect: "
)]
#[case::code(Some(401), None, "ApiError", "status 401: Unauthorized")]
fn the_failed_contact_is_told_apart(
    #[case] code: Option<u16>,
    #[case] of_tls: Option<&str>,
    #[case] text: &str,
    #[case] begins: &str,
) {
    let record = record(
        ("WorkloadUnreachable", "the workload API server does not respond"),
        None,
    );
    let wait = explain(&record, None).unwrap();
    let unreachable = Probe {
        subject: wait.subject(),
        is_unreachable: true,
        ..probe()
    };
    let (probed, asked) = run(unreachable, |_, _| {
        Err(Failure {
            code,
            message: "Unauthorized".to_owned(),
            cause: of_tls.map(str::to_owned),
            ..Failure::other(Server::Workload, text)
        })
    });
    assert_eq!(asked, ["/version"]);
    let cause = probed.cause(&wait, &record).unwrap();
    assert_eq!(cause.name, Cause::WorkloadUnreachable.as_str());
    assert!(cause.evidence.starts_with(begins), "{cause:?}");
}

#[test]
fn a_failed_probe_is_the_evidence() {
    let record = record(("PackagesNotReady", ""), Some("AppReconciling"));
    let wait = explain(&record, None).unwrap();
    let (probed, asked) = run(probe(), |path, _| match path {
        MACHINES => Ok(list(&[])),
        _ => Err(Failure::other(Server::Workload, "reset")),
    });
    // The workload API server is asked no more.
    assert_eq!(asked, [INSTALL, MACHINES]);
    let cause = probed.cause(&wait, &record).unwrap();
    assert_eq!(
        (cause.name.as_str(), cause.evidence.as_str()),
        ("Unknown", "connect: reset")
    );
    // The result is about this package alone.
    let mut other = record.clone();
    other.packages[0].version = "4.0.0".to_owned();
    assert_eq!(probed.cause(&explain(&other, None).unwrap(), &other), None);
}

/// As kapp-controller retries, the first package that the Cluster waits for changes all the time.
#[test]
fn a_cause_stays_while_its_package_is_not_proven() {
    let mut record = record(("PackagesNotReady", ""), Some("AppReconciling"));
    let (probed, _) = run(probe(), |path, _| {
        Ok(match path {
            APP => app(DENIED),
            INSTALL => json!({"metadata": {}}),
            _ => list(&[]),
        })
    });
    let other = PackageRecord {
        name: "agent".to_owned(),
        ..record.packages[0].clone()
    };
    record.packages.insert(0, other);
    let wait = explain(&record, None).unwrap();
    assert_eq!(wait.subject(), "agent 3.0.0");
    let cause = probed.cause(&wait, &record).unwrap();
    assert_eq!(cause.name, Cause::AdmissionDenied.as_str());
    record.packages[1].state = PackageState::Ready;
    assert_eq!(probed.cause(&explain(&record, None).unwrap(), &record), None);
}

#[test]
fn the_label_of_a_first_run_is_that_of_kapp() {
    const KAPP_APP: &str = "/api/v1/namespaces/tkg-system/configmaps/one-antrea.app";
    let record = record(("PackagesNotReady", ""), Some("AppReconciling"));
    let (probed, asked) = run(probe(), |path, query| {
        Ok(match path {
            APP => json!({"metadata": {}, "status": {}}),
            KAPP_APP => {
                json!({"data": {"spec": "{\"labelKey\":\"kapp.k14s.io/app\",\"labelValue\":\"17\",\"usedGKs\":[]}"}})
            }
            INSTALL => json!({"metadata": {}}),
            PODS if query.contains("kapp.k14s.io") && query.contains("Running") => {
                list(&[pod(&waiting("CrashLoopBackOff"))])
            }
            _ => list(&[]),
        })
    });
    assert!(asked.iter().any(|path| path == KAPP_APP), "{asked:?}");
    let cause = probed.cause(&explain(&record, None).unwrap(), &record).unwrap();
    assert_eq!(cause.name, Cause::CrashLoop.as_str());
}

#[test]
fn an_error_of_kapp_precedes_a_failed_request() {
    let record = record(("PackagesNotReady", ""), Some("AppReconciling"));
    let (probed, _) = run(probe(), |path, _| match path {
        INSTALL => Ok(json!({"metadata": {}})),
        APP => Ok(app("ytt: Error: no such key")),
        _ => Err(Failure::other(Server::Workload, "reset")),
    });
    let cause = probed.cause(&explain(&record, None).unwrap(), &record).unwrap();
    assert_eq!(
        (
            cause.name.as_str(),
            cause.object.as_str(),
            cause.evidence.as_str()
        ),
        ("Unknown", "App tkg-system/one-antrea", "ytt: Error: no such key")
    );
}

#[test]
fn five_thousand_pods_are_within_the_limits() {
    let run_of = |size: usize, machines: &[Value], name: Cause| {
        let record = record(("PackagesNotReady", ""), Some("AppReconciling"));
        let status = json!({"conditions": [], "containerStatuses": [{"name": "x".repeat(size)}]});
        let (probed, asked) = run(probe(), |path, query| {
            let begin: usize = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("continue="))
                .map_or(0, |token| token.parse().unwrap());
            Ok(match path {
                APP => app(""),
                INSTALL => json!({"metadata": {}}),
                PODS if query.contains("Running") => json!({
                    "kind": "PodList", "metadata": {"continue": (begin + 20).to_string()}, "items": vec![pod(&status); 20],
                }),
                MACHINES => list(machines),
                _ => list(&[]),
            })
        });
        assert_eq!(
            probed
                .cause(&explain(&record, None).unwrap(), &record)
                .unwrap()
                .name,
            name.as_str()
        );
        asked.len()
    };
    assert_eq!(run_of(10, &[], Cause::Unknown), 20);
    // 2 MiB are used up before.
    assert!(run_of(10_000, &[], Cause::Unknown) < 20);
    // Running Pods are read last.
    assert_eq!(run_of(10, &[machine(DRAIN)], Cause::DisruptionBudget), 20);
}

#[test]
fn machines_leave_requests_for_running_pods() {
    let record = record(("PackagesNotReady", ""), Some("AppReconciling"));
    let (probed, _) = run(probe(), |path, query| {
        Ok(match path {
            APP => app(""),
            INSTALL => json!({"metadata": {}}),
            MACHINES => json!({"kind": "MachineList", "metadata": {"continue": "50"}, "items": []}),
            PODS if query.contains("Running") => list(&[pod(&waiting("CrashLoopBackOff"))]),
            _ => list(&[]),
        })
    });
    let cause = probed.cause(&explain(&record, None).unwrap(), &record).unwrap();
    assert_eq!(cause.name, Cause::CrashLoop.as_str());
}

#[test]
fn texts_of_tenants_are_cut_and_escaped() {
    let noise = "\u{1b}[31m\u{7}\u{202e}\n".repeat(40_000);
    let named = cause(|path| match path {
        APP => Some(app(&format!("{noise}{DENIED}"))),
        PODS => Some(list(&[pod(&json!({
            "containerStatuses": [{"name": "agent", "state": {"waiting": {"reason": "ErrImagePull", "message": noise}}}],
        }))])),
        _ => None,
    });
    // The words after the noise are cut off.
    assert_eq!(named.name, Cause::ImagePull.as_str());
    let late = format!("{}: {DENIED}", "a ".repeat(1_000));
    let late = cause(|path| (path == APP).then(|| app(&late)));
    assert!(late.evidence.contains("denied the request"), "{late:?}");
    let mut long = pod(&waiting("ErrImagePull"));
    long["metadata"]["name"] = json!(format!("\u{1b}{}", "x".repeat(1_000)));
    let long = cause(|path| (path == PODS).then(|| list(std::slice::from_ref(&long))));
    for cause in [named, late, long] {
        assert!(cause.object.chars().count() <= 320, "{cause:?}");
        assert!(cause.evidence.chars().count() <= 512, "{cause:?}");
        let texts = format!("{}{}", cause.object, cause.evidence);
        assert!(!texts.chars().any(char::is_control), "{texts:?}");
    }
}

#[rstest]
#[case::userinfo(
    "Head \"https://user:pass@host/v2/a\": EOF",
    "Head \"https://host/v2/a\": EOF"
)]
#[case::token("https://token@host:5000/v2/", "https://host:5000/v2/")]
#[case::at_in_a_password("https://user:p@ss@host", "https://host")]
#[case::query("\"https://host/token?account=a&scope=b\": 401", "\"https://host/token 401")]
#[case::query_with_a_url("https://host/a?next=https://user:pass@other/ b", "https://host/a b")]
#[case::two_in_a_word("https://a:b@one,https://c:d@two/e", "https://one,https://two/e")]
#[case::digest("https://host/v2/a@sha256:00", "https://host/v2/a@sha256:00")]
#[case::image(
    "image \"host/a@sha256:00\" not found, why?",
    "image \"host/a@sha256:00\" not found, why?"
)]
#[case::nothing("", "")]
fn urls_lose_their_credentials(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(objects::without_credentials(text), expected);
}

#[rstest]
#[case::image(
    "ImagePullBackOff",
    "container agent waits: ImagePullBackOff: GET https://host/token"
)]
#[case::crash("CrashLoopBackOff", "container agent waits: CrashLoopBackOff")]
#[case::start("RunContainerError", "container agent waits: RunContainerError")]
fn evidence_of_containers_has_no_secrets(#[case] reason: &str, #[case] evidence: &str) {
    let mut status = waiting(reason);
    status["containerStatuses"][0]["state"]["waiting"]["message"] =
        json!("GET https://user:pass@host/token?a=b");
    let cause = cause(|path| (path == PODS).then(|| list(&[pod(&status)])));
    assert_eq!(cause.evidence, evidence);
}

#[rstest]
#[case::of_kapp("kapp.k14s.io/app=1795310150118415764", true)]
#[case::everything("", false)]
#[case::any_value("kapp.k14s.io/app", false)]
#[case::more_labels("a=b,c=d", false)]
fn only_one_label_selects(#[case] label: &str, #[case] is_sent: bool) {
    let asked = run(probe(), |path, _| {
        Ok(match path {
            APP => json!({"status": {"deploy": {"kapp": {"associatedResources": {"label": label}}}}}),
            INSTALL => json!({"metadata": {}}),
            _ => list(&[]),
        })
    });
    assert_eq!(asked.1.iter().any(|path| path == DAEMON_SETS), is_sent);
}
