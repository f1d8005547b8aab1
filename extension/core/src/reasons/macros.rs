//! Declares a vocabulary of reasons: messages, conditions, events and metric labels spell each reason as its variant.

/// Declares the enum of a vocabulary, with its spelling.
macro_rules! reasons {
    ($(#[$of:meta])* $Reason:ident: $($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Reason {
            $($(#[$doc])* $name),+
        }

        impl $Reason {
            /// All reasons, for metrics whose series exist before the first count.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Returns the spelling in conditions, events, metrics and messages.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),+
                }
            }

            /// Returns the reason with this spelling, if this build knows it.
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
