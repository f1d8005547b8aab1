//! Profiles: the advertised hooks and their path, by version of Cluster API.

use crate::Hook;

/// Supported versions of Cluster API.
///
/// A discovery request does not contain the version of its sender, and a sender that does not know one of the hooks
/// refuses all of them. So the path in the ExtensionConfig selects the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Cluster API 1.12 and later, without a prefix.
    Current,
    /// Cluster API before 1.12, under `/capi-1.11`: there are no hooks for single steps, so the gate holds a control plane
    /// that would skip a minor version.
    Before1_12,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 2] = [Self::Current, Self::Before1_12];

    /// Returns the path for `clientConfig.service.path` of an ExtensionConfig.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Current => "",
            Self::Before1_12 => "/capi-1.11",
        }
    }

    /// Returns the profile that the path of an ExtensionConfig selects. A proxy may add a prefix of its own.
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        let path = path.trim_end_matches('/');
        let selects = |profile: &Self| !profile.prefix().is_empty() && path.ends_with(profile.prefix());
        Self::ALL.into_iter().find(selects).unwrap_or(Self::Current)
    }

    /// Returns the advertised and served hooks.
    pub fn hooks(self) -> impl Iterator<Item = Hook> {
        Hook::ALL.into_iter().filter(move |hook| self.knows(*hook))
    }

    /// Whether Cluster API may ask for the plan of an upgrade.
    pub(crate) const fn plans_upgrades(self) -> bool {
        matches!(self, Self::Current)
    }

    const fn knows(self, hook: Hook) -> bool {
        match self {
            Self::Current => true,
            Self::Before1_12 => !matches!(
                hook,
                Hook::BeforeControlPlaneUpgrade | Hook::BeforeWorkersUpgrade | Hook::AfterWorkersUpgrade
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_selects_a_profile() {
        for path in ["", "/", "/proxied", "/capi-1.11/more"] {
            assert_eq!(Profile::of_path(path), Profile::Current, "{path}");
        }
        for path in ["/capi-1.11", "/capi-1.11/", "/proxied/capi-1.11"] {
            assert_eq!(Profile::of_path(path), Profile::Before1_12, "{path}");
        }
    }
}
