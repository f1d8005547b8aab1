//! Proofs that a write lacks in the current state.

use std::cmp::Ordering;

use super::{Ledger, Name, is_own_install};
use crate::observer::bootstrap::{Bootstrap, WantedPackage};
use crate::observer::cluster::ClusterView;
use crate::observer::evidence::Evidence;
use crate::observer::feed::Revision;
use crate::observer::key::Place;
use crate::observer::version;

/// What needs a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// The control plane takes a version.
    ControlPlane,
    /// The control plane has taken a version, and everything was proven again by its API server.
    Reproof,
    /// Workers take a version. What was proven again may be edited since, but nothing may have failed.
    Workers,
    /// Machines are made of something else, at the version that they have: of the release that the entry names now, which is empty if
    /// it names none. None if the entry is gone.
    ReleaseData(Option<&'a str>),
}

/// Something that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    /// refName of the package, or what else it is.
    pub(super) of: String,
    /// Whether it is the proof of a package.
    pub(super) is_proof: bool,
    pub(super) text: String,
}

/// A package that has to be there.
#[derive(Clone)]
struct Wanted {
    package: WantedPackage,
    ref_name: String,
    version: String,
}

/// An installation of a package.
struct Found<'a> {
    place: &'a Place,
    namespace: &'a str,
    /// Name of the PackageInstall.
    install: &'a str,
    evidence: &'a Evidence,
}

/// Requirements on an installation.
struct Needed<'a> {
    name: &'a Name,
    wanted: &'a Wanted,
    /// It is enough that the package is applied.
    applied: bool,
    /// The run has to have begun after this.
    run_after: Revision,
    /// The release whose Nodes its pods may be placed on.
    release: &'a str,
}

impl Missing {
    fn new(what: String) -> Self {
        Self {
            of: what.clone(),
            is_proof: false,
            text: what,
        }
    }
}

impl Ledger {
    /// Missing proofs for `step` to `version`.
    pub(super) fn missing(&self, name: &Name, version: &str, step: Step<'_>) -> Vec<Missing> {
        let Some(cluster) = self.clusters.get(name).filter(|cluster| cluster.object.is_some()) else {
            return vec![Missing::new(format!("a Cluster {}/{}", name.0, name.1))];
        };
        let bootstrap = self.bootstraps.get(name);
        if cluster.tkr().is_empty() && bootstrap.is_none() {
            return Vec::new();
        }
        let mut missing = Vec::new();
        let label = cluster.tkr();
        let mut tkr = label;
        if let Step::ReleaseData(Some(named)) = step {
            if named != label {
                let what = format!("an entry of the label's release {label:?}, it is of {named:?}");
                missing.push(Missing::new(what));
            }
            if !named.is_empty() {
                tkr = named;
            }
        }
        let release = match self.release(tkr, version) {
            Ok(release) => release,
            Err(what) => {
                missing.push(Missing::new(what));
                return missing;
            }
        };
        let Some(template) = self.templates.get(release) else {
            missing.push(Missing::new(format!("a template of release {release}")));
            return missing;
        };
        if matches!(step, Step::Workers | Step::Reproof) && cluster.running != version {
            let running = &cluster.running;
            let what = format!("a control plane that runs {version}, it runs {running:?}");
            missing.push(Missing::new(what));
        }
        let nothing = Bootstrap::default();
        let bootstrap = bootstrap.unwrap_or(&nothing);
        // What was proven again stays so for the workers: AfterControlPlaneUpgrade is not asked twice.
        let only_failures = step == Step::Workers
            && cluster.version == version
            && cluster.reproof.is_some_and(|reproof| reproof.seen);
        let is_on_vsphere = cluster.object.as_ref().is_some_and(|object| object.is_on_vsphere);
        let on_supervisor = is_on_vsphere && self.on_supervisor.contains(name);
        for wanted in self.wanted(template, bootstrap, &mut missing) {
            if step == Step::ControlPlane && bootstrap.exceptions.is_after_control_plane(&wanted.ref_name) {
                continue;
            }
            // Another client installs kapp-controller there, without a PackageInstall.
            if cluster.is_management && wanted.package.is_kapp_controller {
                continue;
            }
            let needed = Needed {
                name,
                wanted: &wanted,
                applied: bootstrap.exceptions.is_applied(&wanted.ref_name, on_supervisor),
                // A run against the control plane that workers will talk to.
                run_after: match step {
                    Step::Workers | Step::Reproof => cluster.running_since,
                    Step::ControlPlane | Step::ReleaseData(_) => 0,
                },
                release,
            };
            let found: Vec<Found<'_>> = self.found(name, cluster, &wanted).collect();
            let lacks: Vec<String> = if only_failures {
                found.iter().filter_map(Found::failure).collect()
            } else if found.is_empty() {
                vec!["not installed".to_owned()]
            } else {
                found
                    .iter()
                    .filter_map(|found| self.lack(found, &needed))
                    .collect()
            };
            if !lacks.is_empty() {
                missing.push(Missing {
                    of: wanted.ref_name,
                    is_proof: true,
                    text: format!("{} ({})", wanted.package.name, lacks.join(", ")),
                });
            }
        }
        missing
    }

    /// Name of the release whose packages belong to `version`: the wanted one, else the only one there is.
    pub(super) fn release(&self, tkr: &str, version: &str) -> Result<&str, String> {
        let mut fitting = self
            .releases
            .iter()
            .filter(|(_, kubernetes)| *kubernetes == version);
        if let Some((name, _)) = fitting.clone().find(|(name, _)| *name == tkr) {
            return Ok(name);
        }
        match (fitting.next(), fitting.next()) {
            (Some((name, _)), None) => Ok(name),
            (None, _) => Err(format!("a release of Kubernetes {version}")),
            (Some(_), Some(_)) => Err(format!("one release of Kubernetes {version}: there are several")),
        }
    }

    /// The template's packages, and those that only the ClusterBootstrap has.
    ///
    /// The ClusterBootstrap's own package stands for the template's where the annotation keeps its version, and where its user
    /// chose it: no template names it, and it is not lower than the template's. A package that the annotation leaves out is not
    /// wanted as long as the ClusterBootstrap does not have it. After a rollback, a higher package is one that has stayed.
    fn wanted(
        &self,
        template: &[WantedPackage],
        bootstrap: &Bootstrap,
        missing: &mut Vec<Missing>,
    ) -> Vec<Wanted> {
        let exceptions = &bootstrap.exceptions;
        let own = self.existing(&bootstrap.packages, missing);
        let mut template = self.existing(template, missing);
        template.retain(|of| !exceptions.leaves_out(&of.ref_name) || own.iter().any(|own| own.is_same(of)));
        let ref_name_of = |name: &str| self.packages.get(name).map(|(ref_name, _)| ref_name.clone());
        template.retain(|of| !of.package.is_cni || bootstrap.wants_cni(&of.ref_name, ref_name_of));
        let is_high_enough = |own: &Wanted| {
            let mut bounds = template.iter().filter(|of| of.is_same(own));
            // Versions without an order cannot be said to be high enough.
            bounds.all(|of| version::order(&own.version, &of.version).is_some_and(Ordering::is_ge))
        };
        let is_chosen = |own: &Wanted| {
            let is_own = bootstrap.rolls_back || !self.is_in_a_template(&own.package.name);
            is_own && is_high_enough(own)
        };
        let is_kept = |own: &Wanted| exceptions.keeps(&own.ref_name, &own.version);
        let kept = own.iter().filter(|own| is_kept(own));
        let chosen = own.iter().filter(|own| is_chosen(own));
        let mut all: Vec<Wanted> = Vec::new();
        for package in kept.chain(chosen).chain(&template).chain(&own) {
            if !all.iter().any(|known| known.is_same(package)) {
                all.push(package.clone());
            }
        }
        all
    }

    /// Those of `packages` whose Package exists; each other one is missing.
    fn existing(&self, packages: &[WantedPackage], missing: &mut Vec<Missing>) -> Vec<Wanted> {
        let mut existing = Vec::new();
        for package in packages {
            match self.packages.get(&package.name) {
                None => missing.push(Missing::new(format!("a Package {}", package.name))),
                Some((ref_name, version)) => existing.push(Wanted {
                    package: package.clone(),
                    ref_name: ref_name.clone(),
                    version: version.clone(),
                }),
            }
        }
        existing
    }

    fn is_in_a_template(&self, package: &str) -> bool {
        let mut named = self.templates.values().flatten();
        named.any(|known| known.name == package)
    }

    fn found<'a>(
        &'a self,
        name: &'a Name,
        cluster: &'a ClusterView,
        wanted: &'a Wanted,
    ) -> impl Iterator<Item = Found<'a>> {
        let kubeconfig = format!("{}-kubeconfig", name.1);
        let from_outside = wanted.package.is_kapp_controller;
        self.evidence
            .iter()
            .map(|((place, (namespace, install)), evidence)| Found {
                place,
                namespace,
                install,
                evidence,
            })
            .filter(move |found| {
                let is_here = match found.place {
                    Place::Management if cluster.is_management => {
                        is_own_install(&name.1, found.namespace, found.install)
                            && found.evidence.kubeconfig_secret().is_empty()
                    }
                    Place::Management => {
                        from_outside
                            && found.namespace == name.0
                            && found.evidence.kubeconfig_secret() == kubeconfig
                    }
                    Place::Workload(uid) => {
                        !cluster.is_management && !from_outside && *uid == cluster.control_plane_uid
                    }
                };
                is_here && found.evidence.ref_name() == wanted.ref_name
            })
    }

    /// Differences between an installation and its desired state.
    fn lack(&self, found: &Found<'_>, needed: &Needed<'_>) -> Option<String> {
        let Needed {
            name,
            wanted,
            applied,
            run_after,
            release,
        } = needed;
        let evidence = found.evidence;
        let applied = applied.then(|| evidence.has_deployed(&wanted.version)).flatten();
        let proof = evidence.proof().filter(|proof| proof.version == wanted.version);
        let Some(run) = applied.or_else(|| proof.map(|proof| proof.run_began)) else {
            return Some(evidence.describe());
        };
        if run <= *run_after {
            return Some(format!(
                "proven at {} by a run from revision {run}, older than {run_after}",
                wanted.version
            ));
        }
        let own = self.bootstraps.get(*name)?.packages.iter().find(|own| {
            let known = self.packages.get(&own.name);
            known.is_some_and(|(ref_name, _)| *ref_name == wanted.ref_name)
        });
        // Only the template lists this package, so its values are not known yet.
        let own = own?;
        let (values, named) = evidence.values();
        let asked = match self.sources.asked(&name.0, &own.values_from) {
            Ok(asked) => asked,
            Err(why) => return Some(why),
        };
        match self.sources.given(found.place, found.namespace, &values, named) {
            Err(why) => Some(why),
            Ok(given) if !given.is(&asked) => {
                Some("runs with other values than the ClusterBootstrap asks for".to_owned())
            }
            Ok(given) if run <= given.since => Some(format!(
                "proven by a run from revision {run}, its values are from {}",
                given.since
            )),
            Ok(given) => {
                let selected = given.selected_release()?;
                let is_other = selected != *release;
                is_other.then(|| format!("its pods are placed on Nodes of {selected}, not of {release}"))
            }
        }
    }
}

impl Wanted {
    /// Whether both are versions of one package.
    fn is_same(&self, other: &Self) -> bool {
        self.ref_name == other.ref_name
    }
}

impl Found<'_> {
    fn failure(&self) -> Option<String> {
        self.evidence.has_failed().then(|| self.evidence.describe())
    }
}
