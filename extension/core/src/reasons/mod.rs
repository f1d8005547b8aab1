//! Hold reasons: one enum per source, with the same spelling in hook messages, conditions, events and metrics.

mod call;
mod check;
mod class;
mod gate;
mod hold;
mod macros;
mod overridable;
mod package;
mod table;

pub use call::CallReason;
pub use check::CheckReason;
pub use class::Class;
pub use gate::GateReason;
pub use hold::{Hold, HoldReason};
pub(crate) use hold::{add_problem, graver};
pub(crate) use macros::reasons;
pub use overridable::Overridable;
pub use package::PackageReason;
pub(crate) use table::put_table;
pub use table::{PAGE, with_tables};
