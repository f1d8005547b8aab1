//! Which Clusters are held, counted again only where something has changed.

use std::collections::{HashMap, HashSet};

use crate::{cluster::ClusterRef, stuck::Held};

/// Clusters of which hooks may be answered otherwise than at the last count.
#[derive(Debug, Default)]
pub struct Uncounted {
    all: bool,
    clusters: HashSet<ClusterRef>,
}

impl Uncounted {
    /// Hooks of this one may be answered otherwise.
    pub fn one(&mut self, cluster: ClusterRef) {
        self.clusters.insert(cluster);
    }

    /// Hooks of any may be.
    pub fn all(&mut self) {
        self.all = true;
    }
}

/// The Clusters that are held.
#[derive(Debug, Default)]
pub struct Counting(HashMap<ClusterRef, Held>);

impl Counting {
    /// Looks again at those that are `uncounted`. `all` names every Cluster, and `look` says where one is held, if it is.
    pub fn count(
        &mut self,
        uncounted: Uncounted,
        all: impl FnOnce() -> Vec<ClusterRef>,
        look: impl Fn(&ClusterRef) -> Option<Held>,
    ) {
        let Uncounted {
            all: every,
            mut clusters,
        } = uncounted;
        if every {
            self.0.clear();
            clusters.extend(all());
        }
        for cluster in clusters {
            match look(&cluster) {
                Some(held) => drop(self.0.insert(cluster, held)),
                None => drop(self.0.remove(&cluster)),
            }
        }
    }

    /// Where each stands.
    pub fn held(&self) -> impl Iterator<Item = Held> {
        self.0.values().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hold::{GateReason, Hold},
        stuck::Standing,
    };

    #[test]
    fn only_what_has_changed_is_looked_at() {
        let held = |name: &str| Held {
            uid: name.to_owned(),
            standing: Standing::of_hold(name, &Hold::new(GateReason::TKRNotFound, "none")),
            recorded: false,
        };
        let cluster = |name: &str| ClusterRef::new("ns", name);
        let (mut counting, looked) = (Counting::default(), std::cell::RefCell::new(Vec::new()));
        let mut count = |uncounted, held_now: &[&str]| {
            looked.borrow_mut().clear();
            counting.count(
                uncounted,
                || vec![cluster("a"), cluster("b")],
                |of| {
                    looked.borrow_mut().push(of.name().to_owned());
                    held_now.contains(&of.name()).then(|| held(of.name()))
                },
            );
            let mut uids: Vec<String> = counting.held().map(|held| held.uid).collect();
            uids.sort();
            looked.borrow_mut().sort();
            (looked.borrow().join(" "), uids.join(" "))
        };
        let one = |name: &str| {
            let mut uncounted = Uncounted::default();
            uncounted.one(cluster(name));
            uncounted
        };
        let all = || Uncounted {
            all: true,
            ..Uncounted::default()
        };
        let expect = |looked: &str, held: &str| (looked.to_owned(), held.to_owned());
        assert_eq!(count(one("a"), &["a", "b"]), expect("a", "a"));
        assert_eq!(count(Uncounted::default(), &[]), expect("", "a"));
        assert_eq!(count(all(), &["a", "b"]), expect("a b", "a b"));
        assert_eq!(count(one("b"), &["a"]), expect("b", "a"));
        assert_eq!(count(all(), &[]), expect("a b", ""));
    }
}
