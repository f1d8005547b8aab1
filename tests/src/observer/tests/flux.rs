//! A Cluster `a/one` with an UpgradeGate: a chart that helm-controller deploys, manifests that kustomize-controller applies, and a
//! definition.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::story::{NEW, OLD};
use crate::observer::feed::{Change, Revision};
use crate::observer::ledger::Ledger;
use crate::observer::milestone::Event;
use crate::observer::violation::Rule;

/// An edit of an object, and the complaint about it.
type Case = (fn(&mut Value), &'static str);

const GATE: &str = "/mgmt/lifecycle.sluice.dev/upgradegates/a/addons";
const RELEASE: &str = "/mgmt/helm.toolkit.fluxcd.io/helmreleases/a/cni";
const KUSTOMIZATION: &str = "/mgmt/kustomize.toolkit.fluxcd.io/kustomizations/a/apps";
const SOURCE: &str = "/mgmt/source.toolkit.fluxcd.io/gitrepositories/a/apps";
const DEFINITION: &str = "/wl/u/apiextensions.k8s.io/customresourcedefinitions/backends.example.com";

/// Versions of the chart.
const BEFORE: &str = "1.17.4";
const AFTER: &str = "1.18.2";

/// Revisions of the source.
const FIRST: &str = "v1@sha1:0a";
const SECOND: &str = "v2@sha1:0b";

/// Events so far, and the objects as they were written last.
struct Story {
    ledger: Ledger,
    revision: Revision,
    objects: BTreeMap<&'static str, Value>,
}

/// What a planted judge sees.
type Judge = fn(&Story) -> bool;

fn release() -> Value {
    json!({
        "metadata": {"name": "cni", "uid": "release", "generation": 1},
        "spec": {"kubeConfig": {"secretRef": {"name": "one-kubeconfig"}}, "chart": {"spec": {"version": BEFORE}}},
        "status": {
            "observedGeneration": 1, "lastAttemptedGeneration": 1,
            "lastAttemptedRevision": BEFORE, "lastAttemptedConfigDigest": "sha256:a",
            "history": [{"version": 1, "status": "deployed", "chartVersion": BEFORE, "configDigest": "sha256:a"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn kustomization() -> Value {
    json!({
        "metadata": {"name": "apps", "uid": "kustomization", "generation": 1},
        "spec": {
            "kubeConfig": {"secretRef": {"name": "one-kubeconfig"}},
            "sourceRef": {"kind": "GitRepository", "name": "apps"},
        },
        "status": {
            "observedGeneration": 1, "lastAppliedRevision": FIRST, "lastAttemptedRevision": FIRST,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn source() -> Value {
    json!({
        "metadata": {"name": "apps", "generation": 1},
        "status": {"observedGeneration": 1, "artifact": {"revision": FIRST}},
    })
}

fn definition() -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    json!({
        "metadata": {"name": "backends.example.com", "generation": 1},
        "spec": {"versions": [{"name": "v1alpha1", "served": true, "schema": {}}]},
        "status": {"conditions": [condition("Established"), condition("NamesAccepted")]},
    })
}

fn gate() -> Value {
    let row = |minor: &str, chart: &str, tag: &str, api: &str| json!({"kubernetes": minor, "values": {"chart": chart, "tag": tag, "api": api}});
    let check = |name: &str, cluster: &str, key: &str, object: Value| json!({"name": name, "cluster": cluster, "versionKey": key, "object": object});
    let chart = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "cni"});
    let apps =
        json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "apps"});
    let api = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "name": "backends.example.com",
    });
    json!({"spec": {
        "mode": "Enforce",
        "clusterSelector": {},
        "before": "ControlPlane",
        "versions": [row("1.35", BEFORE, "v1", "v1alpha1"), row("1.36", AFTER, "v2", "v1")],
        "checks": [
            check("chart", "Management", "chart", chart),
            check("apps", "Management", "tag", apps),
            check("api", "Workload", "api", api),
        ],
    }})
}

impl Story {
    /// The Cluster at rest, with the add-ons of its version.
    fn at_rest() -> Self {
        let mut story = Self {
            ledger: Ledger::default(),
            revision: 0,
            objects: BTreeMap::new(),
        };
        let cluster = json!({"metadata": {"labels": {}}, "spec": {"topology": {"version": NEW}}});
        story.write("/mgmt/cluster.x-k8s.io/clusters/a/one", Some(cluster));
        story.control_plane(OLD);
        let objects = [
            (GATE, gate()),
            (RELEASE, release()),
            (KUSTOMIZATION, kustomization()),
            (SOURCE, source()),
            (DEFINITION, definition()),
        ];
        for (key, object) in objects {
            story.edit(key, |written| *written = object);
        }
        story
    }

    /// All checks are proven at the new version.
    fn proven() -> Self {
        let mut story = Self::at_rest();
        for step in CHART.iter().chain(&APPS).chain(&API) {
            step(&mut story);
        }
        story
    }

    /// The gate has only the check with this name.
    fn only(&mut self, name: &str) {
        self.edit(GATE, |gate| {
            if let Some(checks) = gate["spec"]["checks"].as_array_mut() {
                checks.retain(|check| check["name"] == name);
            }
        });
    }

    fn write(&mut self, key: &str, object: Option<Value>) {
        self.revision += 1;
        self.ledger.observe(&Change {
            revision: self.revision,
            seen: Timestamp::UNIX_EPOCH,
            key: key.to_owned(),
            object,
        });
    }

    fn edit(&mut self, key: &'static str, edit: impl FnOnce(&mut Value)) {
        let object = self.objects.entry(key).or_default();
        edit(object);
        let object = object.clone();
        self.write(key, Some(object));
    }

    fn control_plane(&mut self, version: &str) {
        let plane = json!({
            "metadata": {"uid": "u", "labels": {"cluster.x-k8s.io/cluster-name": "one"}},
            "spec": {"version": version},
            "status": {"version": OLD},
        });
        self.write("/mgmt/harness.test/harnesscontrolplanes/a/one-x", Some(plane));
    }

    #[track_caller]
    fn is_in_order(&mut self) {
        self.control_plane(NEW);
        let violations = self.ledger.violations();
        assert!(violations.is_empty(), "{violations:#?}");
    }

    #[track_caller]
    fn is_early(&mut self, because: &str) {
        self.control_plane(NEW);
        let violations = self.ledger.violations();
        assert_eq!(violations.len(), 1, "{because}: {violations:#?}");
        assert_eq!(violations[0].rule, Rule::ReleasedBeforeGate);
        let text = violations[0].to_string();
        assert!(text.contains(because), "{text}, not {because}");
    }
}

/// The writes of an upgrade of the chart, in their order.
const CHART: [fn(&mut Story); 3] = [
    |story| {
        story.edit(RELEASE, |release| {
            release["metadata"]["generation"] = json!(2);
            release["spec"]["chart"]["spec"]["version"] = json!(AFTER);
        });
    },
    |story| {
        story.edit(RELEASE, |release| {
            let status = &mut release["status"];
            status["observedGeneration"] = json!(2);
            status["lastAttemptedGeneration"] = json!(2);
            status["lastAttemptedRevision"] = json!(AFTER);
            status["conditions"] = conditions(&[("Reconciling", "True"), ("Ready", "Unknown")]);
        });
    },
    |story| {
        story.edit(RELEASE, |release| {
            let status = &mut release["status"];
            status["history"] = json!([entry(2, "deployed", AFTER), entry(1, "superseded", BEFORE),]);
            status["conditions"] = conditions(&[("Ready", "True")]);
        });
    },
];

/// source-controller has fetched a commit. The generation of the source stays.
const COMMIT: fn(&mut Story) = |story| {
    story.edit(SOURCE, |source| {
        source["status"]["artifact"]["revision"] = json!(SECOND);
    });
};

/// The writes of a commit, in their order.
const APPS: [fn(&mut Story); 2] = [COMMIT, |story| {
    story.edit(KUSTOMIZATION, |kustomization| {
        kustomization["status"]["lastAttemptedRevision"] = json!(SECOND);
        kustomization["status"]["lastAppliedRevision"] = json!(SECOND);
    });
}];

/// That of a definition.
const API: [fn(&mut Story); 1] = [|story| {
    story.edit(DEFINITION, |definition| {
        definition["spec"]["versions"] = json!([
            {"name": "v1", "served": true, "schema": {}},
            {"name": "v1alpha1", "served": false, "schema": {}},
        ]);
    });
}];

/// helm-controller has rolled the new chart back, and reports that.
const ROLLBACK: fn(&mut Story) = |story| {
    story.edit(RELEASE, |release| {
        let status = &mut release["status"];
        status["history"] = json!([
            entry(3, "deployed", BEFORE),
            entry(2, "failed", AFTER),
            entry(1, "superseded", BEFORE),
        ]);
        status["conditions"] = conditions(&[("Ready", "False"), ("Remediated", "True")]);
    });
};

/// The HelmRelease is suspended and edited in one write, and helm-controller notes its generation.
const SUSPENDED: [fn(&mut Story); 2] = [
    |story| {
        story.edit(RELEASE, |release| {
            release["metadata"]["generation"] = json!(2);
            release["spec"]["suspend"] = json!(true);
            release["spec"]["chart"]["spec"]["version"] = json!(AFTER);
        });
    },
    |story| {
        story.edit(RELEASE, |release| {
            release["status"]["observedGeneration"] = json!(2);
        });
    },
];

fn entry(version: i64, status: &str, chart: &str) -> Value {
    json!({"version": version, "status": status, "chartVersion": chart, "configDigest": "sha256:a"})
}

fn conditions(all: &[(&str, &str)]) -> Value {
    let condition = |(kind, status): &(&str, &str)| json!({"type": kind, "status": status});
    all.iter().map(condition).collect()
}

fn is_ready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn is_observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

fn asks_for_the_chart(story: &Story) -> bool {
    story.objects[RELEASE]["spec"]["chart"]["spec"]["version"] == AFTER
}

/// Trusts condition Ready of the HelmRelease, whatever generation it speaks of.
fn trusts_ready(story: &Story) -> bool {
    asks_for_the_chart(story) && is_ready(&story.objects[RELEASE])
}

/// The same, of the current generation.
fn trusts_an_observed_generation(story: &Story) -> bool {
    trusts_ready(story) && is_observed(&story.objects[RELEASE])
}

/// Takes any release that is deployed for the one that was asked for.
fn trusts_a_deployed_release(story: &Story) -> bool {
    let release = &story.objects[RELEASE];
    let is_current = release["status"]["history"][0]["version"].as_i64() > Some(1);
    is_current && release["status"]["history"][0]["status"] == "deployed" && is_observed(release)
}

/// Never reads the source.
fn trusts_the_kustomization_alone(story: &Story) -> bool {
    let kustomization = &story.objects[KUSTOMIZATION];
    let status = &kustomization["status"];
    is_ready(kustomization)
        && is_observed(kustomization)
        && status["lastAppliedRevision"] == status["lastAttemptedRevision"]
}

/// Writes the version to the control plane as soon as `judge` says that it may.
#[track_caller]
fn is_caught(judge: Judge, check: &str, steps: &[fn(&mut Story)], because: &str) {
    let mut story = Story::at_rest();
    story.only(check);
    let mut steps = steps.iter();
    // The first write is the edit of a user.
    steps.next().expect("an edit")(&mut story);
    while !judge(&story) {
        let step = steps.next().expect("the judge never agrees");
        step(&mut story);
    }
    story.is_early(because);
}

#[test]
fn all_proofs_are_in_order() {
    Story::proven().is_in_order();
}

#[test]
fn planted_judges_are_caught() {
    is_caught(
        trusts_ready,
        "chart",
        &CHART,
        "addons/chart (generation 2 is observed as 1)",
    );
    is_caught(
        trusts_an_observed_generation,
        "chart",
        &SUSPENDED,
        "addons/chart (it is suspended)",
    );
    is_caught(
        trusts_a_deployed_release,
        "chart",
        &[CHART[0], CHART[1], ROLLBACK],
        "addons/chart (it is Remediated)",
    );
    is_caught(
        trusts_the_kustomization_alone,
        "apps",
        &[COMMIT],
        "addons/apps (v1@sha1:0a is applied, its source is at v2@sha1:0b)",
    );
}

/// Breaks an object of a story in which all is proven, one way each.
#[track_caller]
fn each_is_early(key: &'static str, cases: &[Case]) {
    for (break_it, because) in cases {
        let mut story = Story::proven();
        story.edit(key, *break_it);
        story.is_early(because);
    }
}

#[test]
fn each_rule_of_a_helm_release_can_be_broken() {
    let cases: [Case; 13] = [
        (
            |release| release["metadata"]["deletionTimestamp"] = json!("now"),
            "cni is being deleted",
        ),
        (
            |release| release["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "two"}),
            "cni is of Cluster two",
        ),
        (|release| release["spec"]["suspend"] = json!(true), "suspended"),
        (
            |release| release["spec"]["kubeConfig"] = Value::Null,
            "it is for null",
        ),
        (
            |release| release["spec"]["kubeConfig"]["secretRef"]["name"] = json!("two-kubeconfig"),
            "two-kubeconfig",
        ),
        (
            |release| release["metadata"]["generation"] = json!(3),
            "generation 3 is observed as 2",
        ),
        (
            |release| release["status"]["lastAttemptedGeneration"] = json!(1),
            "generation 1 was tried last",
        ),
        (
            |release| release["status"]["history"] = json!([]),
            "it has no history",
        ),
        // Whatever the order of the list.
        (
            |release| {
                release["status"]["history"] =
                    json!([entry(2, "deployed", AFTER), entry(3, "failed", AFTER)]);
            },
            "newest release is \"failed\"",
        ),
        (
            |release| {
                release["status"]["history"] =
                    json!([entry(3, "deployed", BEFORE), entry(2, "failed", AFTER)]);
            },
            "chart \"1.18.2\" was tried last, \"1.17.4\" is deployed",
        ),
        (
            |release| release["status"]["lastAttemptedConfigDigest"] = json!("sha256:b"),
            "values \"sha256:b\" were tried last",
        ),
        (
            |release| release["status"]["conditions"] = conditions(&[("Ready", "False")]),
            "its conditions are",
        ),
        (
            |release| {
                release["status"]["conditions"] = conditions(&[("Ready", "True"), ("Stalled", "True")]);
            },
            "it is Stalled",
        ),
    ];
    each_is_early(RELEASE, &cases);
    let mut story = Story::proven();
    story.write(RELEASE, None);
    story.is_early("there is no HelmRelease cni");
}

/// The digest of an OCI artifact is no part of the version, and Helm may be told to keep other values.
#[test]
fn a_chart_of_an_artifact_and_values_that_are_kept_are_proven() {
    let edits: [fn(&mut Value); 2] = [
        |release| {
            let chart = format!("{AFTER}+0123456789ab");
            release["status"]["lastAttemptedRevisionDigest"] = json!("sha256:0123456789abcdef");
            release["status"]["lastAttemptedRevision"] = json!(chart);
            release["status"]["history"] = json!([entry(2, "deployed", &chart)]);
        },
        |release| {
            release["spec"]["upgrade"]["preserveValues"] = json!(true);
            release["status"]["lastAttemptedConfigDigest"] = json!("sha256:b");
        },
    ];
    for edit in edits {
        let mut story = Story::proven();
        story.edit(RELEASE, edit);
        story.is_in_order();
    }
}

#[test]
fn build_metadata_is_part_of_a_chart_version() {
    let mut story = Story::proven();
    story.edit(RELEASE, |release| {
        let chart = format!("{AFTER}+vmware.1");
        release["status"]["lastAttemptedRevision"] = json!(chart);
        release["status"]["history"] = json!([entry(2, "deployed", &chart)]);
    });
    story.is_early("it is at version \"1.18.2+vmware.1\"");
}

#[test]
fn each_rule_of_a_kustomization_can_be_broken() {
    let cases: [Case; 8] = [
        (
            |kustomization| kustomization["spec"]["suspend"] = json!(true),
            "suspended",
        ),
        (
            |kustomization| kustomization["spec"]["kubeConfig"] = Value::Null,
            "it is for null",
        ),
        (
            |kustomization| kustomization["metadata"]["generation"] = json!(2),
            "generation 2 is observed as 1",
        ),
        (
            |kustomization| kustomization["status"]["lastAttemptedRevision"] = json!("v3@sha1:0c"),
            "revision \"v3@sha1:0c\" was tried last",
        ),
        (
            |kustomization| kustomization["status"]["conditions"] = conditions(&[("Ready", "False")]),
            "its conditions are",
        ),
        (
            |kustomization| kustomization["spec"]["sourceRef"]["name"] = json!("others"),
            "there is no source others",
        ),
        (
            |kustomization| kustomization["spec"]["sourceRef"]["namespace"] = json!("b"),
            "its source is in namespace b",
        ),
        (
            |kustomization| kustomization["spec"]["sourceRef"]["kind"] = json!("Folder"),
            "its source is",
        ),
    ];
    each_is_early(KUSTOMIZATION, &cases);
    let cases: [Case; 6] = [
        (
            |source| source["spec"]["suspend"] = json!(true),
            "its source is suspended",
        ),
        (
            |source| source["status"]["conditions"] = conditions(&[("Stalled", "True")]),
            "its source is Stalled",
        ),
        (
            |source| source["metadata"]["generation"] = json!(3),
            "generation 3 of its source is observed as 1",
        ),
        (
            |source| source["metadata"]["deletionTimestamp"] = json!("now"),
            "there is no source apps",
        ),
        (|source| source["status"]["artifact"] = Value::Null, "no artifact"),
        (
            |source| source["status"]["artifact"]["revision"] = json!("v2@sha1:0c"),
            "its source is at v2@sha1:0c",
        ),
    ];
    each_is_early(SOURCE, &cases);
    let mut story = Story::proven();
    for key in [SOURCE, KUSTOMIZATION] {
        story.edit(key, |object| {
            let revision = json!("v1@sha1:0d");
            object["status"]["artifact"]["revision"] = revision.clone();
            object["status"]["lastAppliedRevision"] = revision.clone();
            object["status"]["lastAttemptedRevision"] = revision;
        });
    }
    story.is_early("it is at version \"v1@sha1:0d\"");
}

/// The controllers that write ExternalArtifacts report no observed generation.
#[test]
fn an_external_artifact_needs_no_observed_generation() {
    for (key, is_early) in [("externalartifacts", false), ("ocirepositories", true)] {
        let mut story = Story::proven();
        let kind = if is_early {
            "OCIRepository"
        } else {
            "ExternalArtifact"
        };
        story.edit(KUSTOMIZATION, |kustomization| {
            kustomization["spec"]["sourceRef"]["kind"] = json!(kind);
        });
        let mut source = story.objects[SOURCE].clone();
        source["status"]["observedGeneration"] = Value::Null;
        story.write(
            &format!("/mgmt/source.toolkit.fluxcd.io/{key}/a/apps"),
            Some(source),
        );
        if is_early {
            story.is_early("generation 1 of its source is observed as null");
        } else {
            story.is_in_order();
        }
    }
}

/// A version is all of a revision, or its name.
#[test]
fn a_revision_has_a_name_and_a_digest() {
    let cases = [
        ("v2@sha1:0b", "v2@sha1:0b", true),
        ("sha256:0b", "sha256:0b", true),
        ("apps@v2@sha1:0b", "apps@v2", true),
        ("v2@sha1:0b", "sha1:0b", false),
    ];
    for (revision, wanted, is_proven) in cases {
        let mut story = Story::proven();
        story.edit(GATE, |gate| {
            gate["spec"]["versions"][1]["values"]["tag"] = json!(wanted);
        });
        story.edit(SOURCE, |source| {
            source["status"]["artifact"]["revision"] = json!(revision);
        });
        story.edit(KUSTOMIZATION, |kustomization| {
            kustomization["status"]["lastAppliedRevision"] = json!(revision);
            kustomization["status"]["lastAttemptedRevision"] = json!(revision);
        });
        if is_proven {
            story.is_in_order();
        } else {
            story.is_early("it is at version");
        }
    }
}

#[test]
fn each_rule_of_a_definition_can_be_broken() {
    let cases: [Case; 4] = [
        (
            |definition| definition["spec"]["versions"][0]["served"] = json!(false),
            "version v1 is not served",
        ),
        (
            |definition| definition["status"]["conditions"][0]["status"] = json!("False"),
            "it is not Established",
        ),
        (
            |definition| definition["status"]["conditions"][1]["status"] = json!("False"),
            "it is not NamesAccepted",
        ),
        (
            |definition| definition["status"]["observedGeneration"] = json!(0),
            "its generation is not observed",
        ),
    ];
    each_is_early(DEFINITION, &cases);
    let mut story = Story::proven();
    story.write(DEFINITION, None);
    story.is_early("there is no CustomResourceDefinition backends.example.com");
}

#[test]
fn a_resync_takes_nothing_back_unless_it_never_succeeded() {
    let works = |object: &mut Value| {
        object["status"]["conditions"] = conditions(&[("Reconciling", "True"), ("Ready", "Unknown")]);
    };
    for key in [RELEASE, KUSTOMIZATION] {
        let mut story = Story::proven();
        story.edit(key, works);
        story.is_in_order();

        let mut story = Story::proven();
        story.edit(key, works);
        // Another object of the same name.
        story.edit(key, |object| object["metadata"]["uid"] = json!("another"));
        story.is_early("its conditions are");
    }
}

/// On the workload cluster Flux needs no kubeconfig, and a source may be in any namespace of it.
#[test]
fn objects_of_flux_may_be_on_the_workload_cluster() {
    for (is_from_outside, because) in [(false, ""), (true, "it is for")] {
        let mut story = Story::proven();
        story.edit(GATE, |gate| {
            for check in gate["spec"]["checks"].as_array_mut().into_iter().flatten() {
                check["cluster"] = json!("Workload");
                check["object"]["namespace"] = json!("flux-system");
            }
        });
        let mut release = story.objects[RELEASE].clone();
        let mut kustomization = story.objects[KUSTOMIZATION].clone();
        if !is_from_outside {
            release["spec"]["kubeConfig"] = Value::Null;
        }
        kustomization["spec"]["kubeConfig"] = Value::Null;
        kustomization["spec"]["sourceRef"]["namespace"] = json!("sources");
        let source = story.objects[SOURCE].clone();
        let written = [
            ("helm.toolkit.fluxcd.io/helmreleases/flux-system/cni", release),
            (
                "kustomize.toolkit.fluxcd.io/kustomizations/flux-system/apps",
                kustomization,
            ),
            ("source.toolkit.fluxcd.io/gitrepositories/sources/apps", source),
        ];
        for (key, object) in written {
            story.write(&format!("/wl/u/{key}"), Some(object));
        }
        if is_from_outside {
            story.is_early(because);
        } else {
            story.is_in_order();
        }
    }
}

/// The observer evaluates no expression, and says so.
#[test]
fn expressions_are_left_out() {
    let mut story = Story::proven();
    story.edit(GATE, |gate| {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Backend", "name": "main"});
        gate["spec"]["checks"][0]["cel"] = json!("object.status.ready");
        gate["spec"]["checks"][1] =
            json!({"name": "backend", "object": object, "cel": "object.status.ready"});
    });
    assert_eq!(
        story.ledger.left_out("a"),
        ["addons/chart: its expression", "addons/backend: kind Backend"]
    );
    assert!(story.ledger.left_out("b").is_empty());
    // What is not proven is not early, and the rest is still judged.
    story.edit(RELEASE, |release| release["spec"]["suspend"] = json!(true));
    story.is_early("addons/chart (it is suspended)");
}

#[test]
fn an_audit_gate_is_noted_where_it_lacks_a_proof() {
    for (is_proven, wanted) in [(true, 0), (false, 1)] {
        let mut story = if is_proven {
            Story::proven()
        } else {
            Story::at_rest()
        };
        story.edit(GATE, |gate| gate["spec"]["mode"] = json!("Audit"));
        story.is_in_order();
        let milestones = story.ledger.milestones().iter();
        let noted = milestones.filter(|milestone| {
            matches!(&milestone.event, Event::AuditWouldHold { gate, version } if gate == "addons" && version == NEW)
        });
        assert_eq!(noted.count(), wanted);
    }
}
