//! Kubeconfig of the management cluster: `--kubeconfig`, or the files of `KUBECONFIG`. That of an operator may hold anything; those of
//! workload clusters may not.

use std::{
    env,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tracing::warn;

/// Reads the kubeconfig in `flag`, or merges the files in `variable` as kubectl does. Returns `None` for the service account of the pod: if
/// both name no file, or, as in client-go, if the files in `variable` are missing or empty.
///
/// # Errors
/// A file cannot be read or used. The error names the file.
pub(crate) async fn config(flag: Option<&Path>, variable: Option<&OsStr>) -> anyhow::Result<Option<Config>> {
    let (kubeconfig, source) = if let Some(path) = flag {
        let source = format!("--kubeconfig {}", path.display());
        let read = Kubeconfig::read_from(path).with_context(|| format!("read {source}"))?;
        (read, source)
    } else {
        let files = variable.map(files).unwrap_or_default();
        if files.is_empty() {
            return Ok(None);
        }
        let (merged, listed) = (merged(&files)?, listed(&files));
        if is_empty(&merged) {
            warn!(
                files = listed,
                "Using the service account of the pod, because the files of KUBECONFIG are missing or empty"
            );
            return Ok(None);
        }
        (merged, format!("KUBECONFIG {listed}"))
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.map(Some).with_context(|| format!("use {source}"))
}

fn files(variable: &OsStr) -> Vec<PathBuf> {
    env::split_paths(variable)
        .filter(|path| !path.as_os_str().is_empty())
        .collect()
}

/// Merges files as client-go does. The first file with an entry of a name, or with a current context, wins. Missing files are skipped.
fn merged(files: &[PathBuf]) -> anyhow::Result<Kubeconfig> {
    let mut merged = Kubeconfig::default();
    for file in files {
        let mut read = match Kubeconfig::read_from(file) {
            Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.with_context(|| format!("read {} of KUBECONFIG", file.display()))?,
        };
        // `kubectl config unset current-context` leaves an empty one.
        read.current_context = read.current_context.filter(|context| !context.is_empty());
        let both = merged.merge(read);
        merged = both.with_context(|| format!("merge {} of KUBECONFIG", file.display()))?;
    }
    Ok(merged)
}

/// Returns whether a kubeconfig has neither entries nor a current context.
fn is_empty(kubeconfig: &Kubeconfig) -> bool {
    let Kubeconfig {
        clusters,
        contexts,
        auth_infos,
        current_context,
        ..
    } = kubeconfig;
    clusters.is_empty() && contexts.is_empty() && auth_infos.is_empty() && current_context.is_none()
}

fn listed(files: &[PathBuf]) -> String {
    let shown: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, fs};

    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;

    const CLUSTER: &str = "clusters: [{name: a, cluster: {server: 'https://first'}}]";
    const OTHER_CLUSTER: &str = "clusters: [{name: a, cluster: {server: 'https://second'}}]";
    const CONTEXT: &str = "current-context: a\ncontexts: [{name: a, context: {cluster: a}}]";
    const EMPTY_CONTEXT: &str =
        "current-context: ''\nclusters: [{name: a, cluster: {server: 'https://first'}}]";
    const OTHER_CONTEXT: &str =
        "current-context: b\ncontexts: [{name: a, context: {cluster: b}}, {name: b, context: {cluster: b}}]";

    /// Path of a file in a directory of its own.
    fn path(directory: &TempDir, number: usize) -> PathBuf {
        directory.path().join(number.to_string()).join("config")
    }

    /// Writes the texts, one file each, and returns KUBECONFIG with these files. A file without a text is missing.
    fn kubeconfig(directory: &TempDir, texts: &[Option<&str>]) -> OsString {
        for (number, text) in texts.iter().enumerate() {
            let file = path(directory, number);
            if let Some(text) = text {
                fs::create_dir(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
        }
        env::join_paths((0..texts.len()).map(|number| path(directory, number))).unwrap()
    }

    /// The error with its sources.
    async fn refused(flag: Option<&Path>, variable: Option<&OsStr>) -> String {
        format!("{:#}", config(flag, variable).await.unwrap_err())
    }

    #[rstest]
    #[case::context_in_the_second_file(&[Some(CLUSTER), Some(CONTEXT)], "https://first/")]
    #[case::empty_context_in_the_first_file(&[Some(EMPTY_CONTEXT), Some(CONTEXT)], "https://first/")]
    #[case::missing_file(&[None, Some(CLUSTER), None, Some(CONTEXT)], "https://first/")]
    #[case::empty_file(&[Some(""), Some(CLUSTER), Some(CONTEXT)], "https://first/")]
    #[case::first_cluster_wins(&[Some(CLUSTER), Some(OTHER_CLUSTER), Some(CONTEXT)], "https://first/")]
    #[case::first_context_wins(&[Some(CONTEXT), Some(OTHER_CONTEXT), Some(OTHER_CLUSTER)], "https://second/")]
    #[tokio::test]
    async fn files_are_merged_as_kubectl_does(#[case] texts: &[Option<&str>], #[case] server: &str) {
        let directory = tempfile::tempdir().unwrap();
        let mut variable = OsString::from("::");
        variable.push(kubeconfig(&directory, texts));
        variable.push(":");

        let config = config(None, Some(&variable)).await.unwrap().unwrap();

        assert_eq!(config.cluster_url.to_string(), server);
    }

    #[tokio::test]
    async fn a_relative_path_is_relative_to_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let cluster =
            "clusters: [{name: a, cluster: {server: 'https://first', certificate-authority: ca.crt}}]";
        let variable = kubeconfig(&directory, &[Some(CONTEXT), Some(cluster)]);
        let authority = path(&directory, 1).with_file_name("ca.crt");
        fs::write(
            &authority,
            "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n",
        )
        .unwrap();

        let read = config(None, Some(&variable)).await.unwrap().unwrap();

        assert_eq!(read.root_cert, Some(vec![b"hello".to_vec()]));
        fs::remove_file(&authority).unwrap();
        let error = refused(None, Some(&variable)).await;
        assert!(error.contains(authority.to_str().unwrap()), "{error}");
    }

    #[tokio::test]
    async fn the_flag_is_one_file_and_takes_precedence() {
        let directory = tempfile::tempdir().unwrap();
        let variable = kubeconfig(&directory, &[Some(CLUSTER), Some(CONTEXT), None]);
        let missing = path(&directory, 2);

        let error = refused(Some(&missing), Some(&variable)).await;
        assert!(
            error.starts_with(&format!("read --kubeconfig {}", missing.display())),
            "{error}"
        );
        let error = refused(Some(Path::new(&variable)), None).await;
        assert!(error.starts_with("read --kubeconfig "), "{error}");
    }

    #[tokio::test]
    async fn errors_name_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let variable = kubeconfig(&directory, &[None, Some("clusters: 1"), Some(CONTEXT)]);
        let [invalid, alone] = [1, 2].map(|number| path(&directory, number));

        let error = refused(None, Some(&variable)).await;
        assert!(
            error.starts_with(&format!("read {} of KUBECONFIG", invalid.display())),
            "{error}"
        );
        let error = refused(None, Some(alone.as_os_str())).await;
        assert!(
            error.starts_with(&format!("use KUBECONFIG {}", alone.display())),
            "{error}"
        );
    }

    #[rstest]
    #[case::missing(&[None::<&str>, None])]
    #[case::empty(&[Some("")])]
    #[case::without_entries(&[None, Some("apiVersion: v1\nkind: Config\nclusters: []\ncurrent-context: ''")])]
    #[tokio::test]
    async fn missing_and_empty_files_leave_the_service_account(#[case] texts: &[Option<&str>]) {
        let directory = tempfile::tempdir().unwrap();
        let variable = kubeconfig(&directory, texts);

        let read = config(None, Some(&variable)).await.unwrap();

        assert!(read.is_none());
    }

    #[tokio::test]
    async fn empty_entries_name_no_file() {
        for variable in [None, Some(""), Some("::")] {
            let read = config(None, variable.map(OsStr::new)).await.unwrap();
            assert!(read.is_none(), "{variable:?}");
        }
    }
}
