//! Virtual environments with packages of others, made once and kept in the target directory.

use crate::background::Started;
use crate::tool::{root, tool};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What PyTorch, ONNX Runtime and the tools of the Python package are installed from, below the root.
const TORCH: &str = "tests/roundtrip/requirements.txt";
/// What TensorFlow is installed from, which does not bear the same NumPy.
const TENSORFLOW: &str = "tests/tensorflow/requirements.txt";
/// What the clients of others are installed from that use the store.
const STORE_CLIENTS: &str = "tests/store/requirements.txt";
/// What the tools of others are installed from that open our runs.
const TOOLS: &str = "tests/tools/requirements.txt";
/// What MLflow's SQLite store needs besides its client, for benchmarks.
const MLFLOW_STORE: [&str; 3] = ["alembic==1.20.1", "sqlalchemy==2.1.8", "sqlparse==0.6.1"];
/// What builds the Python package.
const MATURIN: &str = "maturin==1.16.0";
/// What calls of Python functions are compared with.
const RAY: &str = "ray==2.60.0";
/// What searches are compared with.
const ARCHAI: [&str; 2] = ["archai==1.0.0", "overrides==3.1.0"];

/// A virtual environment that should hold some packages.
pub(crate) struct Environment {
    dir: PathBuf,
    /// What `pip install` is told.
    packages: Vec<String>,
    /// Packages that are installed without what they say they need.
    bare: Vec<String>,
    /// Tells one content from another.
    wanted: String,
}

/// An environment whose packages are on their way.
pub(crate) struct Installing {
    environment: Environment,
    pip: Option<Started>,
}

impl Environment {
    pub(crate) fn of(name: &str, packages: &[&str]) -> Self {
        let dir = root().join("target/venv").join(name);
        let packages: Vec<String> = packages.iter().map(ToString::to_string).collect();
        Self { dir, wanted: packages.join(" "), packages, bare: Vec::new() }
    }

    /// PyTorch and ONNX Runtime, to compare with.
    pub(crate) fn torch() -> anyhow::Result<Self> {
        Self::from_file("torch", TORCH)
    }

    /// TensorFlow, for programs of its users.
    pub(crate) fn tensorflow() -> anyhow::Result<Self> {
        Self::from_file("tensorflow", TENSORFLOW)
    }

    /// PyTorch and Ray beside each other, for benchmarks.
    pub(crate) fn python_bench() -> anyhow::Result<Self> {
        let mut environment = Self::from_file("python-bench", TORCH)?;
        environment.packages.push(RAY.to_owned());
        environment.wanted.push_str(RAY);
        Ok(environment)
    }

    /// redis-py and SmartRedis, to use the store with.
    pub(crate) fn store_clients() -> anyhow::Result<Self> {
        Self::from_file("store-clients", STORE_CLIENTS)
    }

    /// TensorBoard, pandas, MLflow's client and Prometheus' parser, to open runs with, and a server of S3.
    pub(crate) fn tools() -> anyhow::Result<Self> {
        Self::from_file("tools", TOOLS)
    }

    /// MLflow's client with its stores and TensorBoard's writer, for benchmarks of the ledger.
    pub(crate) fn ledger_bench() -> anyhow::Result<Self> {
        let mut environment = Self::from_file("ledger-bench", TOOLS)?;
        environment.packages.extend(MLFLOW_STORE.map(str::to_owned));
        environment.wanted.push_str(&MLFLOW_STORE.join(" "));
        Ok(environment)
    }

    /// PyTorch, Ray and Archai, for benchmarks of the search.
    pub(crate) fn search_bench() -> anyhow::Result<Self> {
        let mut environment = Self::from_file("search-bench", TORCH)?;
        environment.packages.push(RAY.to_owned());
        // Of what Archai names, its evaluators use little.
        environment.bare.extend(ARCHAI.map(str::to_owned));
        environment.wanted.push_str(RAY);
        environment.wanted.push_str(&ARCHAI.join(" "));
        Ok(environment)
    }

    /// redis-py, SmartRedis and what builds our package, for benchmarks of the store.
    pub(crate) fn store_bench() -> anyhow::Result<Self> {
        let mut environment = Self::from_file("store-bench", STORE_CLIENTS)?;
        environment.packages.push(MATURIN.to_owned());
        environment.wanted.push_str(MATURIN);
        Ok(environment)
    }

    fn from_file(name: &str, requirements: &str) -> anyhow::Result<Self> {
        let read = std::fs::read_to_string(root().join(requirements));
        let wanted = read.with_context(|| format!("could not read {requirements}"))?;
        Ok(Self { wanted, ..Self::of(name, &["--requirement", requirements]) })
    }

    fn python(&self) -> PathBuf {
        self.dir.join("bin/python")
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.python().is_file()
            && std::fs::read_to_string(self.dir.join("installed")).is_ok_and(|have| have == self.wanted)
    }

    /// Begins to install what is missing.
    pub(crate) fn begin(self) -> anyhow::Result<Installing> {
        if self.is_ready() {
            return Ok(Installing { environment: self, pip: None });
        }
        say(&format!("making {}, in the background", self.dir.display()));
        tool("python3", &["-m", "venv", &self.dir.to_string_lossy()]).run()?;
        let args = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        if !self.bare.is_empty() {
            let bare = ["--no-deps"].into_iter().chain(self.bare.iter().map(String::as_str));
            let bare: Vec<&str> = args.into_iter().chain(bare).collect();
            tool(self.python(), &bare).run()?;
        }
        let args: Vec<&str> = args.into_iter().chain(self.packages.iter().map(String::as_str)).collect();
        let pip = Some(tool(self.python(), &args).start()?);
        Ok(Installing { environment: self, pip })
    }

    /// Installs what is missing; gives the Python of the environment.
    pub(crate) fn install(self) -> anyhow::Result<PathBuf> {
        self.begin()?.wait()
    }
}

impl Installing {
    /// Waits until all is installed; gives the Python of the environment.
    pub(crate) fn wait(self) -> anyhow::Result<PathBuf> {
        let Environment { dir, wanted, .. } = &self.environment;
        if let Some(pip) = self.pip {
            let since = Instant::now();
            pip.wait()?;
            std::fs::write(dir.join("installed"), wanted)?;
            say(&format!("waited {:.0?} for {}", since.elapsed(), dir.display()));
        }
        Ok(self.environment.python())
    }
}

/// Builds the Python package into the environment of this Python and checks it: types, stubs, tests, documents.
pub(crate) fn check_package(python: &Path) -> anyhow::Result<()> {
    let environment = python.parent().and_then(Path::parent).context("a Python outside of an environment")?;
    // What the tests before have built is built the same way, so that little is left to do.
    tool(python, &["-m", "maturin", "develop", "--quiet", "--profile", "dev"])
        .env("VIRTUAL_ENV", environment)
        .run()?;
    tool(python, &["python/check.py"]).run()
}

/// Has clients of others use the store of the program that the tests before have built.
pub(crate) fn check_store(python: &Path) -> anyhow::Result<()> {
    tool(python, &["-m", "pytest", "-q", "tests/store"]).run()
}

/// Has tools of others open the runs of the program that the tests before have built, and servers of others keep them.
/// Without a directory with Azurite, the tests of Azure are left out.
pub(crate) fn check_tools(python: &Path, azurite: Option<&Path>) -> anyhow::Result<()> {
    let mut tests = tool(python, &["-m", "pytest", "-q", "tests/tools"]);
    if let Some(azurite) = azurite {
        tests = tests.env("PHALANX_AZURITE", azurite).env("PHALANX_REQUIRE_AZURITE", "1");
    }
    tests.run()
}

/// Installs the package with pip into an empty environment, as a user does, and runs the examples of the documents
/// there; then into the one of TensorFlow, and runs the tests that need it.
pub(crate) fn check_installing(tensorflow: &Path) -> anyhow::Result<()> {
    let dir = root().join("target/venv/empty");
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("could not remove {}", dir.display()))?;
    }
    tool("python3", &["-m", "venv", &dir.to_string_lossy()]).run()?;
    let python = dir.join("bin/python");
    install_package(&python, &["pytest"])?;
    tool(dir.join("bin/phalanx"), &["--version"]).run()?;
    tool(&python, &["-m", "pytest", "-q", "python/tests/test_documents.py"]).run()?;
    install_package(tensorflow, &[])?;
    let tests = [
        "python/tests/test_ops_tensorflow.py",
        "python/tests/test_keras.py",
        "python/tests/test_training_data.py",
    ];
    tool(tensorflow, &[&["-m", "pytest", "-q"], &tests[..]].concat()).run()
}

/// Has pip build and install the package. It is not optimised, so that it need not be built a second time.
fn install_package(python: &Path, others: &[&str]) -> anyhow::Result<()> {
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let package = ["--config-settings=build-args=--profile dev", "."];
    tool(python, &[&pip[..], &package[..], others].concat()).run()
}

#[expect(clippy::print_stderr, reason = "says what happens")]
fn say(line: &str) {
    eprintln!("{line}");
}
