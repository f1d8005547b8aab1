//! kube-scheduler. It is built for the scenarios in which it places Pods.

use anyhow::Result;

use super::catalogue::{KUBERNETES, MANAGEMENT_VERSION, kubernetes_flags};
use super::go::Program;

/// Its main package.
const PACKAGE: &str = "k8s.io/kubernetes/cmd/kube-scheduler";

/// Its program, and how it is built: in the module of kube-controller-manager, with which it shares most packages.
pub(super) fn program() -> Result<Program> {
    Ok(Program {
        name: "kube-scheduler",
        module: KUBERNETES,
        package: PACKAGE,
        linker_flags: kubernetes_flags(MANAGEMENT_VERSION)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_module_requires_it() {
        let Program { module, package, .. } = program().unwrap();
        assert!(
            module.go_mod.lines().any(|line| line.trim() == package),
            "no {package}"
        );
    }
}
