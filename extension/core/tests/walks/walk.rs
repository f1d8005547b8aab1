//! One walk: what may happen next, and what must be true.

use std::time::Instant;

use serde_json::{Value, json};
use sluice_core::pass::{Verb, Write};
use sluice_crds::{
    labels::{annotation, label},
    run::{Gate, Hook, Outcome, UpgradeRecord},
};

use crate::{
    kapp::Kapp,
    leader::{Did, Leader},
    objects::{
        PACKAGES, RELEASES, VERSIONS, bootstrap, cluster, control_plane, package, package_name,
        package_place, servers, values, values_source, worker,
    },
    servers::{Place, Servers},
};

/// Rounds of a fair schedule within which an upgrade comes to its end.
const ROUNDS: u32 = 80;

pub(crate) struct Walk {
    servers: Servers,
    kapp: Kapp,
    /// Two processes that take themselves for leaders. The first one does most of the work.
    leaders: [Leader; 2],
    epoch: Instant,
    time: u64,
    /// When all packages of each release were deployed as their sources were, last.
    right_at: [Option<u64>; 2],
}

impl Walk {
    pub(crate) fn new() -> Self {
        Self {
            servers: servers(),
            kapp: Kapp::default(),
            leaders: [Leader::default(), Leader::default()],
            epoch: Instant::now(),
            time: 0,
            right_at: [None, None],
        }
    }

    /// The user asks for the next version.
    pub(crate) fn bump(&mut self) {
        self.servers.edit(&cluster(), |cluster| {
            cluster["metadata"]["labels"][label::TKR] = json!(RELEASES[1]);
            cluster["spec"]["topology"]["version"] = json!(VERSIONS[1]);
        });
    }

    /// What one byte says.
    pub(crate) fn step(&mut self, byte: u8) {
        let package = usize::from(byte) % 3;
        let leader = usize::from(byte & 1);
        match byte >> 1 {
            // Most of what happens goes on as if it were undisturbed: else few walks come to a gate that opens.
            0..=24 => self.lead(leader, None),
            25..=44 => self.come_to_an_end(),
            45..=59 => self.watch(0, None),
            60..=64 => self.watch(1, None),
            65..=70 => self.watch(leader, Some(byte)),
            71..=86 => self.deploy(package),
            87..=89 => self.kapp.sync(&mut self.servers, package),
            90..=93 => self.kapp.begin(&mut self.servers, package),
            94..=97 => self.kapp.end(&mut self.servers, package, true),
            98..=99 => self.kapp.end(&mut self.servers, package, false),
            100..=106 => self.cluster_api(),
            107..=109 => self.bump(),
            110 => self.leaders[leader].crash(),
            111 => self.lead(0, Some([500, 503][leader])),
            112..=113 => self.edit_values(u64::from(byte & 3)),
            114 => self.edit_package(package, "b"),
            115 => self.edit_package(package, "a"),
            116 => self.remove_on_workload("secrets", byte),
            117 => self.alter_on_workload(byte),
            118 => self.remove_on_workload("packageinstalls", byte),
            119 => self.remove_on_workload("clusterroles", byte),
            120 => self.apply_old_manifest(),
            _ => self.time += 10,
        }
        self.tick();
    }

    fn tick(&mut self) {
        self.time += 1;
        for release in [0, 1] {
            if self.is_right(release) {
                self.right_at[release] = Some(self.time);
            }
        }
    }

    /// Whether each package is really deployed at the version of a release.
    fn is_right(&self, release: usize) -> bool {
        let given = self
            .servers
            .get(&values_source())
            .map(|secret| secret["data"].clone());
        // Packages without values have a Secret that says nothing.
        let empty = json!({"values.yaml": "e30K"});
        [empty.clone(), given.unwrap_or_default(), empty]
            .iter()
            .enumerate()
            .all(|(package, values)| {
                let name = package_name(package, release);
                self.kapp.is_right(&self.servers, package, &name, values)
            })
    }

    fn record(servers: &Servers) -> Option<UpgradeRecord> {
        let bootstrap = servers.get(&bootstrap())?;
        serde_json::from_value(bootstrap["status"]["upgrade"].clone()).ok()
    }

    fn lead(&mut self, which: usize, refuses: Option<u16>) {
        let before = Self::record(&self.servers);
        let leader = &mut self.leaders[which];
        let did = leader.step(&mut self.servers, self.time, self.epoch, refuses);
        let began = leader.began;
        if let Did::Wrote(write) = did
            && write.verb == Verb::ReplaceStatus
        {
            self.judge(before.as_ref(), &write, began);
        }
    }

    /// A gate that a status opens has its truth.
    fn judge(&mut self, before: Option<&UpgradeRecord>, write: &Write, began: u64) {
        self.tick();
        let record = Self::record(&self.servers).expect("a record was written");
        let was_open = |gate: &Gate| {
            let mut gates = before.into_iter().flat_map(|record| &record.gates);
            gates.any(|other| other.open && (other.hook, &other.version) == (gate.hook, &gate.version))
        };
        let lets_go = |hook| {
            matches!(
                hook,
                Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade | Hook::AfterControlPlaneUpgrade
            )
        };
        let taken = self
            .servers
            .get(&control_plane())
            .map(|plane| plane["spec"]["version"].clone());
        let taken = taken.unwrap_or_default();
        for gate in &record.gates {
            if !gate.open || was_open(gate) || !lets_go(gate.hook) {
                continue;
            }
            // What the control plane has taken already lets nothing go.
            if gate.hook != Hook::AfterControlPlaneUpgrade && json!(gate.version) == taken {
                continue;
            }
            let release = |version: &str| {
                let release = VERSIONS.iter().position(|other| *other == version);
                release.expect("a version of the walk")
            };
            // Packages of the hop that run on the version before it are as good a proof of that version.
            let hop = record.hop.as_deref().map(release);
            let right = hop
                .and_then(|hop| self.right_at[hop])
                .max(self.right_at[release(&gate.version)]);
            assert!(
                right.is_some_and(|at| at >= began),
                "{:?} {} is opened by a pass that began at {began}, and all was right last at {right:?}; {write:?}; deployed {:#?}, record {record:#?}",
                gate.hook,
                gate.version,
                self.kapp.deployed,
            );
        }
    }

    /// The watches show everything, or one object.
    fn watch(&mut self, leader: usize, which: Option<u8>) {
        let Some(which) = which else {
            self.leaders[leader].seen = self.servers.clone();
            return;
        };
        let places: Vec<Place> = self.servers.all().keys().cloned().collect();
        let place = places[usize::from(which) * 7 % places.len()].clone();
        let shown = self.servers.get(&place).cloned().unwrap_or_default();
        self.leaders[leader].seen.show(place, shown);
    }

    /// Cluster API, as far as it asks before the control plane and the workers take a version. It reads the record as it is.
    fn cluster_api(&mut self) {
        let Some(record) = Self::record(&self.servers) else {
            return;
        };
        let cluster = self.servers.get(&cluster()).cloned().unwrap_or_default();
        let generation = |place| {
            self.servers
                .get(&place)
                .map(|object| object["metadata"]["generation"].clone())
        };
        if cluster["metadata"]["generation"] != json!(record.observed_cluster_generation)
            || generation(bootstrap()) != Some(json!(record.observed_bootstrap_generation))
        {
            return;
        }
        let to = cluster["spec"]["topology"]["version"].clone();
        let open = |hook| {
            record
                .gates
                .iter()
                .any(|gate| gate.open && gate.hook == hook && json!(gate.version) == to)
        };
        let rolls = |servers: &mut Servers, place: &Place| {
            let object = servers.get(place).cloned().unwrap_or_default();
            let (spec, status) = (&object["spec"]["version"], &object["status"]["version"]);
            if spec == status {
                return false;
            }
            let version = spec.clone();
            servers.edit(place, |object| object["status"]["version"] = version);
            true
        };
        if rolls(&mut self.servers, &control_plane()) || rolls(&mut self.servers, &worker()) {
            return;
        }
        let version =
            |servers: &Servers, place: &Place| servers.get(place).map(|at| at["spec"]["version"].clone());
        let take = |servers: &mut Servers, place: &Place| {
            servers.edit(place, |object| object["spec"]["version"] = to.clone());
        };
        let is_at = |place: &Place| version(&self.servers, place).as_ref() == Some(&to);
        if !is_at(&control_plane()) {
            if open(Hook::BeforeClusterUpgrade) && open(Hook::BeforeControlPlaneUpgrade) {
                take(&mut self.servers, &control_plane());
            }
        } else if !is_at(&worker())
            && open(Hook::AfterControlPlaneUpgrade)
            && open(Hook::BeforeWorkersUpgrade)
        {
            take(&mut self.servers, &worker());
        }
    }

    fn edit_values(&mut self, replicas: u64) {
        let data = values(replicas)["data"].clone();
        self.servers
            .edit(&values_source(), |secret| secret["data"] = data);
    }

    fn edit_package(&mut self, which: usize, path: &str) {
        let spec = package(which, 1, path)["spec"].clone();
        self.servers
            .edit(&package_place(&package_name(which, 1)), |package| {
                package["spec"] = spec;
            });
    }

    fn on_workload(&self, plural: &str, which: u8) -> Option<Place> {
        let places = self.servers.all().keys();
        let places: Vec<&Place> = places.filter(|place| place.0 && place.1 == plural).collect();
        let index = usize::from(which >> 1).checked_rem(places.len())?;
        Some(places[index].clone())
    }

    fn remove_on_workload(&mut self, plural: &str, which: u8) {
        if let Some(place) = self.on_workload(plural, which) {
            self.servers.remove(&place);
        }
    }

    /// A values Secret or a Package of the workload says something else.
    fn alter_on_workload(&mut self, which: u8) {
        let plural = ["secrets", "packages"][usize::from(which & 1)];
        if let Some(place) = self.on_workload(plural, which) {
            self.servers.edit(&place, |object| match plural {
                "secrets" => object["data"] = values(9)["data"].clone(),
                _ => object["spec"]["template"]["spec"]["template"][0]["ytt"]["paths"] = json!(["c"]),
            });
        }
    }

    /// A user applies the ClusterBootstrap of the first release again.
    fn apply_old_manifest(&mut self) {
        self.servers.edit(&bootstrap(), |bootstrap| {
            name_packages(bootstrap, 0);
        });
    }

    /// With every input made good, the upgrade comes to its end.
    pub(crate) fn finish(&mut self) {
        self.bump();
        for package in PACKAGES {
            self.edit_package(package, "a");
        }
        self.edit_values(1);
        self.servers.edit(&bootstrap(), |bootstrap| {
            // An old manifest is put right by hand once the packages of the release were merged.
            if bootstrap["metadata"]["annotations"][annotation::RESOLVED_TKR] == json!(RELEASES[1]) {
                name_packages(bootstrap, 1);
            }
        });
        for _ in 0..ROUNDS {
            self.round();
            if self.is_over() {
                return;
            }
        }
        let record = Self::record(&self.servers);
        panic!(
            "not at its end after {ROUNDS} rounds: last {:?}, deployed {:#?}, record {record:#?}",
            self.leaders[0].last, self.kapp.deployed
        );
    }

    fn round(&mut self) {
        // A pass that is under way may know what is old by now.
        self.come_to_an_end();
        self.watch(0, None);
        self.come_to_an_end();
        for package in PACKAGES {
            self.deploy(package);
        }
        self.cluster_api();
        self.time += 10;
        self.tick();
    }

    /// kapp-controller deploys a package, and nothing happens meanwhile.
    fn deploy(&mut self, package: usize) {
        self.kapp.sync(&mut self.servers, package);
        self.kapp.begin(&mut self.servers, package);
        self.kapp.end(&mut self.servers, package, true);
        self.kapp.sync(&mut self.servers, package);
    }

    /// The pass of the first leader that is under way, or another one, comes to its end.
    fn come_to_an_end(&mut self) {
        self.lead(0, None);
        while self.leaders[0].is_running() {
            self.lead(0, None);
            self.tick();
        }
    }

    fn is_over(&self) -> bool {
        let completed = Self::record(&self.servers)
            .is_some_and(|record| record.outcome == Some(Outcome::Completed) && record.to == VERSIONS[1]);
        let at = self
            .servers
            .get(&worker())
            .map(|worker| worker["status"]["version"].clone());
        completed && at == Some(json!(VERSIONS[1]))
    }
}

/// Names the packages of a release in the spec of a ClusterBootstrap.
fn name_packages(bootstrap: &mut Value, release: usize) {
    let [kapp, cni, other] = PACKAGES.map(|package| json!(package_name(package, release)));
    let spec = &mut bootstrap["spec"];
    spec["kapp"]["refName"] = kapp;
    spec["cni"]["refName"] = cni;
    spec["additionalPackages"][0]["refName"] = other;
}
