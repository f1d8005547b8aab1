//! Output for operators: columns, deadline, history, and versions without an open gate.

mod columns;
mod deadline;
mod history;
mod ungated;

pub(crate) use columns::scenario as columns;
pub(crate) use deadline::scenario as deadline;
pub(crate) use history::scenario as history;
pub(crate) use ungated::scenario as ungated;
