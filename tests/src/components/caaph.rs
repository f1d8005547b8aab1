//! CAAPH (cluster-api-addon-provider-helm), which delivers Helm charts to Clusters. It is built for the scenarios that need it.

use super::catalogue::module;
use super::go::Program;

/// Version of CAAPH.
pub const CAAPH_VERSION: &str = "v0.6.4";

/// Its module, whose root is its main package.
const PACKAGE: &str = "sigs.k8s.io/cluster-api-addon-provider-helm";

/// Its program, and how it is built.
pub(super) fn program() -> Program {
    Program {
        name: "caaph",
        module: module!("caaph"),
        package: PACKAGE,
        linker_flags: format!("-s -w -X {PACKAGE}/version.gitVersion={CAAPH_VERSION}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The linker writes the version into the program, whatever it is built from.
    #[test]
    fn the_version_is_that_of_the_module() {
        let required = format!("require {PACKAGE} {CAAPH_VERSION}");
        let module = program().module;
        assert!(
            module.go_mod.lines().any(|line| line == required),
            "no {required}"
        );
    }
}
