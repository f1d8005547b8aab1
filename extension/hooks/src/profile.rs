//! Which hooks a caller is offered, and under which path.

use crate::Hook;

/// Which Cluster API is served.
///
/// A discovery request does not tell the version of its sender, and a sender that does not know one of the hooks
/// refuses all of them. So the hooks are chosen by the path that an ExtensionConfig names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Cluster API 1.12 and later, without a prefix.
    Current,
    /// Cluster API before 1.12, under `/capi-1.11`: there are no hooks for single steps, so a control plane that would
    /// skip a minor version is held.
    Before1_12,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 2] = [Self::Current, Self::Before1_12];

    /// The path that an ExtensionConfig sets as `clientConfig.service.path`.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Current => "",
            Self::Before1_12 => "/capi-1.11",
        }
    }

    /// The hooks that are advertised and served.
    pub fn hooks(self) -> impl Iterator<Item = Hook> {
        Hook::ALL.into_iter().filter(move |hook| self.knows(*hook))
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
