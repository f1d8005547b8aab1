//! A vocabulary of reasons: each is spelled in messages, conditions, events and metric labels as its variant is named.

/// Declares the enum of a vocabulary, with its spelling.
macro_rules! reasons {
    ($(#[$of:meta])* $Reason:ident: $($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Reason {
            $($(#[$doc])* $name),+
        }

        impl $Reason {
            /// Every reason, for metrics that are created before they are counted.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The reason as conditions, events, metrics and messages spell it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),+
                }
            }

            /// The reason that is spelled so, if this build knows it.
            #[must_use]
            pub fn parse(spelled: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == spelled)
            }
        }

        impl std::fmt::Display for $Reason {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use reasons;
