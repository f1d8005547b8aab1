//! The ways in which an API server misbehaves.

/// Fault of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It completes the TLS handshake and never responds.
    Silent,
    /// Every answer arrives seconds late.
    Late,
    /// An answer begins at once and arrives byte by byte.
    Drips,
    /// An answer never ends, as fast as it is read.
    Endless,
    /// 429 with a retry in a day.
    TooManyRequests,
    /// 503.
    Unavailable,
    /// Connections are reset at the first request.
    Resets,
    /// An answer is cut off in its middle.
    HalfAnswers,
    /// Every answer but those to watches is padded with small maps, those to writes as well: one of five with 8 MiB, the others with less.
    Dense,
    /// A list of a billion bytes.
    BillionBytes,
    /// A list with a `continue` token on every page.
    EndlessPages,
    /// The same, and no page has an object.
    EmptyPages,
    /// A list succeeds, and its watch never sends an event.
    MuteWatch,
    /// Every watch has expired as soon as it begins.
    ExpiredWatch,
    /// A watch shows objects in the wrong order, as they were before and as if they were gone, and expires.
    ReorderedWatch,
    /// A watch shows objects that were never listed, one after the other and without end.
    EndlessWatch,
}

impl Fault {
    /// Whether no answer comes to its end. Connections that are open when it begins stay so; with every other fault they are reset.
    pub(super) const fn never_ends(self) -> bool {
        matches!(self, Self::Silent | Self::Drips | Self::Endless)
    }

    /// Whether Sluice promises to report `WorkloadUnreachable`. A server that responds within the limits is reachable.
    #[must_use]
    pub const fn makes_unreachable(self) -> bool {
        !matches!(
            self,
            Self::Late | Self::MuteWatch | Self::ExpiredWatch | Self::ReorderedWatch
        )
    }
}
