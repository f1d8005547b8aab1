//! Sluice as operators install it: by the commands of docs/install.md, with kubectl, Helm and clusterctl, on real API servers.

mod guide;
mod installed;
mod site;
mod tools;

pub use guide::{Block, Guide};
pub use installed::{Installed, Object};
pub use site::{Said, Shell, Site};
pub use tools::{Definitions, OF_AN_INSTALLATION, OF_EXAMPLES, Tool, definitions};
