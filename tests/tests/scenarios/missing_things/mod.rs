//! Something is not there, or cannot be used: held for that reason, said everywhere it is promised, and over by itself.

mod hooks;
mod kubeconfig;
mod release;
mod row;

pub(crate) use {hooks::scenario as hooks, kubeconfig::scenario as kubeconfig, release::scenario as release};
