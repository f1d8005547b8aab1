//! Cost of the plan of an upgrade of three hops among 300 releases, with 16 packages, and of a comparison of 64 KiB of values with a schema
//! of 64 KiB.

use std::{
    collections::BTreeMap,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_benches::catalogue;
use sluice_core::{
    clock::Clock,
    packages::{
        bootstrap::{Catalogue, PackageFacts},
        build::Owner,
    },
    protocol::{Context, Interrupt, Key, Read, ReadResult, Server},
    reconcile::cluster::{CachedControlPlane, Facts, LocalState, Settings},
    schedule::SyncPeriod,
    upgrade::hop::{ControlPlaneFacts, Plan, Rollout},
    upgrade_plan::{Scope, UpgradePlan, mismatches, plan},
};
use sluice_crds::{
    foreign::{Cluster, Package},
    labels::annotation,
    run::{ClusterBootstrap, ClusterBootstrapTemplate},
};

const PACKAGES: usize = 16;
const FROM: usize = 30;
const TO: usize = 33;

fn version(minor: usize) -> String {
    format!("v1.{minor}.0+vmware.1")
}

fn release(minor: usize) -> String {
    format!("v1.{minor}.0---vmware.1-tkg.1")
}

/// Returns the name of a Package of a release.
fn package(index: usize, minor: usize) -> String {
    format!("package-{index}.example.com.1.{minor}.0")
}

/// Returns the packages of a release, as a ClusterBootstrap has them.
fn spec(minor: usize) -> Value {
    let named = |index| json!({"refName": package(index, minor)});
    json!({
        "kapp": named(0), "cni": named(1), "cpi": named(2), "csi": named(3),
        "additionalPackages": (4..PACKAGES).map(named).collect::<Vec<_>>(),
    })
}

fn template(minor: usize) -> serde_json::Result<Arc<ClusterBootstrapTemplate>> {
    let template =
        json!({"metadata": {"name": release(minor), "namespace": "tkg-system"}, "spec": spec(minor)});
    serde_json::from_value(template).map(Arc::new)
}

fn packages() -> serde_json::Result<Catalogue> {
    let mut all = Catalogue::new();
    for minor in FROM..=TO {
        for index in 0..PACKAGES {
            let name = package(index, minor);
            let object: Package = serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "tkg-system"},
                "spec": {"refName": format!("package-{index}.example.com"), "version": format!("1.{minor}.0")},
            }))?;
            all.insert(name, PackageFacts::of(&object));
        }
    }
    Ok(all)
}

/// Returns a Cluster that upgrades over three minor versions.
fn facts(now: Instant) -> serde_json::Result<Facts> {
    let (mut releases, images) = catalogue::catalogue()?;
    for minor in FROM..=TO {
        let listed: Vec<Value> = (0..PACKAGES)
            .map(|index| json!({"name": package(index, minor)}))
            .collect();
        if let Some(release) = releases.get_mut(&release(minor)) {
            Arc::make_mut(release).spec.bootstrap_packages = serde_json::from_value(listed.into())?;
        }
    }
    let cluster: Cluster = serde_json::from_value(json!({
        "metadata": {
            "name": "one", "namespace": "team", "uid": "uid", "generation": 1,
            "labels": {"run.tanzu.vmware.com/tkr": release(TO)},
        },
        "spec": {"topology": {"classRef": {"name": "class"}, "version": version(TO)}},
    }))?;
    let bootstrap: ClusterBootstrap = serde_json::from_value(json!({
        "metadata": {
            "name": "one", "namespace": "team", "uid": "uid", "generation": 1,
            "annotations": {annotation::RESOLVED_TKR: release(FROM)},
        },
        "spec": spec(FROM),
    }))?;
    Ok(Facts {
        overrides: None,
        gate_in_force: None,
        settings: Settings {
            system_namespace: "tkg-system".to_owned(),
            extension_configs: Vec::new(),
            sync_period: SyncPeriod {
                length: Duration::from_mins(10),
                since: now,
            },
            deletion_limit: Duration::from_mins(10),
        },
        server_now: None,
        management_uid: None,
        owner: Owner {
            name: "one".to_owned(),
            namespace: "team".to_owned(),
            uid: "uid".to_owned(),
        },
        label: release(TO),
        topology: cluster.spec.topology.clone().unwrap_or_default(),
        made_of: None,
        follows_bootstrap: false,
        class: None,
        bootstrap: Some(Arc::new(bootstrap)),
        control_plane: Some(CachedControlPlane {
            key: Key::of::<Cluster>(Server::Management, Some("team"), "one"),
            uid: None,
            generation: None,
            resource_version: None,
            versions: ControlPlaneFacts {
                spec_version: Some(version(FROM)),
                status_version: Some(version(FROM)),
            },
            rollout: Rollout::default(),
        }),
        unknown: None,
        workers: Vec::new(),
        plan: Plan::Listed((FROM..=TO).map(version).collect()),
        own_steps: None,
        releases: Arc::new(releases),
        images: Some(Arc::new(images)),
        undecodable_release: None,
        catalogue: Arc::new(packages()?),
        management_packages: Arc::default(),
        cluster: Arc::new(cluster),
    })
}

/// Returns the plan, with templates from a cache.
fn planned(
    facts: &Facts,
    templates: &BTreeMap<String, Arc<ClusterBootstrapTemplate>>,
    began: Clock,
) -> Option<UpgradePlan> {
    let local = LocalState::default();
    let mut context = Context::new(facts, &local, began);
    loop {
        let reads = match plan(
            &context,
            Scope {
                schemas: true,
                values: false,
            },
        ) {
            Ok(plan) => return Some(plan),
            Err(Interrupt::Need(reads)) => context.unanswered(reads).ok()?,
            Err(_) => return None,
        };
        for read in reads {
            let template = match &read {
                Read::Template(release) => templates.get(release),
                _ => None,
            };
            let answer = template.map_or(ReadResult::Absent, |template| {
                ReadResult::Template(Arc::clone(template))
            });
            context.record_answer(read, answer);
        }
    }
}

/// Returns a schema and matching values, each of about 64 KiB.
fn schema_and_values() -> (Value, Value) {
    let field = |index: usize| match index % 4 {
        0 => (
            json!({"type": "string", "nullable": true, "default": "", "description": "x".repeat(20)}),
            json!("a".repeat(200)),
        ),
        1 => (
            json!({"type": "integer", "minimum": 0, "description": "x".repeat(20)}),
            json!(index),
        ),
        // A schema may have 100 patterns.
        2 if index == 2 => (
            json!({"type": "string", "pattern": "^[a-z0-9.-]+$"}),
            json!(format!("{index}.example.com")),
        ),
        2 => (
            json!({"type": "string", "maxLength": 64, "description": "x".repeat(20)}),
            json!(format!("{index}.example.com")),
        ),
        _ => (
            json!({"type": "array", "items": {"type": "string"}}),
            json!(["a", "b", "c"]),
        ),
    };
    let (mut properties, mut values) = (serde_json::Map::new(), serde_json::Map::new());
    for group in 0..60 {
        let fields = (0..16).map(|index| (format!("field-{index}"), field(index)));
        let (mut schemas, mut given) = (serde_json::Map::new(), serde_json::Map::new());
        for (name, (schema, value)) in fields {
            schemas.insert(name.clone(), schema);
            given.insert(name, value);
        }
        let name = format!("group-{group}");
        let schema = json!({"type": "object", "additionalProperties": false, "properties": schemas});
        properties.insert(name.clone(), schema);
        values.insert(name, given.into());
    }
    let schema = json!({"type": "object", "additionalProperties": false, "properties": properties});
    (schema, values.into())
}

fn plans(criterion: &mut Criterion) {
    let began = Clock {
        now: Timestamp::UNIX_EPOCH,
        instant: Instant::now(),
    };
    let templates = (FROM..=TO).map(|minor| template(minor).map(|template| (release(minor), template)));
    let (Ok(facts), Ok(templates)) = (facts(began.instant), templates.collect::<Result<_, _>>()) else {
        return;
    };
    let hops = planned(&facts, &templates, began).map(|plan| plan.hops);
    let changed = hops.iter().flatten().map(|hop| hop.packages.len());
    assert_eq!(changed.collect::<Vec<_>>(), [PACKAGES; TO - FROM], "{hops:?}");
    let (schema, values) = schema_and_values();
    assert_eq!(mismatches(&schema, &values), Ok(Vec::new()));
    let length = |value: &Value| value.to_string().len() / 1024;
    assert!(
        length(&schema).min(length(&values)) >= 64,
        "{} {}",
        length(&schema),
        length(&values)
    );
    let mut group = criterion.benchmark_group("upgrade-plan");
    group.bench_function("3-hops-16-packages", |bencher| {
        bencher.iter(|| planned(black_box(&facts), &templates, began));
    });
    group.bench_function("schema-64-kib", |bencher| {
        bencher.iter(|| mismatches(black_box(&schema), black_box(&values)));
    });
    group.finish();
}

criterion_group!(benches, plans);
criterion_main!(benches);
