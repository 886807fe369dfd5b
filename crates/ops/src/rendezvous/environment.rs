//! What the environment says about where ranks meet.

use super::auth::Secret;
use crate::core::gathering::Refusal;
use phalanx_types::Class;
use std::time::Duration;

/// Ports of jobs without one of their own are in this range.
const PORTS: std::ops::Range<u64> = 23_000..32_000;

/// Where a process meets the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meeting {
    /// It is the only rank.
    Alone,
    /// At a server.
    At {
        /// `host:port`.
        address: String,
        /// The number of this process.
        worker: u32,
        /// If this process is the server: how many processes come to it.
        serve: Option<u32>,
        /// What the ranks know.
        secret: Secret,
    },
}

/// Why ranks do not find each other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// A variable has a value that makes no sense.
    #[error("{variable} is {value:?}, which is not {expected}")]
    Variable {
        /// The name of the variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A variable is missing.
    #[error("{found} is set, but {missing} is not")]
    Missing {
        /// The variable that is set.
        found: &'static str,
        /// The variable that is not.
        missing: &'static str,
    },
    /// The processes did not all come.
    #[error("not all ranks came to {address} within {waited:?}")]
    Timeout {
        /// Where they should have come.
        address: String,
        /// For how long this process waited.
        waited: Duration,
    },
    /// The connection to the server or to a rank broke.
    #[error("a connection to another rank failed")]
    Connection {
        /// How.
        #[source]
        source: std::io::Error,
    },
    /// The server could not start.
    #[error("could not listen for the other ranks at {address}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The server does not let this process in.
    #[error("the rendezvous refused this process: {refusal}")]
    Refused {
        /// Why.
        refusal: Refusal,
    },
}

impl RendezvousError {
    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        match self {
            RendezvousError::Variable { .. }
            | RendezvousError::Missing { .. }
            | RendezvousError::Listen { .. } => Class::Fatal,
            RendezvousError::Timeout { .. } | RendezvousError::Connection { .. } => Class::Retry,
            RendezvousError::Refused { refusal } => match refusal {
                Refusal::MemberGone => Class::Retry,
                Refusal::Duplicate | Refusal::NoSuchRank => Class::Fatal,
            },
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            RendezvousError::Variable { .. } | RendezvousError::Missing { .. } => Some(
                "start the program by `phalanx launch -n 4 -- …`, srun or mpirun, or without these variables",
            ),
            RendezvousError::Timeout { .. } => {
                Some("every rank must call init; check that all run and reach the host of rank 0")
            }
            RendezvousError::Listen { .. } => Some("set PHALANX_PORT to a port that is free"),
            RendezvousError::Connection { .. } | RendezvousError::Refused { .. } => None,
        }
    }
}

impl Meeting {
    /// What the variables of this process say: of `phalanx launch`, torchrun, Open MPI, other MPIs or Slurm, in this
    /// order. Without any of them the process is alone.
    ///
    /// # Errors
    /// A variable makes no sense, or one is missing.
    pub fn from_env() -> Result<Self, RendezvousError> {
        Self::from_variables(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// The same of variables that are given.
    ///
    /// # Errors
    /// As [`Meeting::from_env`].
    pub fn from_variables(get: &dyn Fn(&str) -> Option<String>) -> Result<Self, RendezvousError> {
        let secret = match get("PHALANX_SECRET") {
            None => Secret::default(),
            Some(hex) => Secret::from_hex(&hex).ok_or(RendezvousError::Variable {
                variable: "PHALANX_SECRET",
                value: "…".to_owned(),
                expected: "a hexadecimal number",
            })?,
        };
        if let Some(address) = get("PHALANX_RENDEZVOUS") {
            let worker = number(get, "PHALANX_WORKER", "PHALANX_RENDEZVOUS")?;
            return Ok(Meeting::At { address, worker, serve: None, secret });
        }
        for source in SOURCES {
            if let Some(meeting) = source.meeting(get, &secret)? {
                return Ok(meeting);
            }
        }
        Ok(Meeting::Alone)
    }
}

/// One program that starts ranks.
struct Source {
    rank: &'static str,
    size: &'static str,
    /// Set only in ranks, not in the shell that starts them.
    also: &'static str,
    local_size: &'static str,
    job: &'static [&'static str],
    nodes: &'static [&'static str],
}

const SOURCES: [Source; 4] = [
    Source {
        rank: "RANK",
        size: "WORLD_SIZE",
        also: "MASTER_ADDR",
        local_size: "LOCAL_WORLD_SIZE",
        job: &["TORCHELASTIC_RUN_ID"],
        nodes: &[],
    },
    Source {
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        also: "OMPI_COMM_WORLD_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
        nodes: &["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"],
    },
    Source {
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        also: "PMI_RANK",
        local_size: "MPI_LOCALNRANKS",
        job: &["PMI_JOBID", "PMI_KVS", "SLURM_JOB_ID"],
        nodes: &["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"],
    },
    Source {
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        also: "SLURM_STEP_ID",
        local_size: "",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        nodes: &["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"],
    },
];

impl Source {
    fn meeting(
        &self,
        get: &dyn Fn(&str) -> Option<String>,
        secret: &Secret,
    ) -> Result<Option<Meeting>, RendezvousError> {
        if get(self.rank).is_none() || (get(self.size).is_none() && self.also != self.rank) {
            return Ok(None);
        }
        let worker = number(get, self.rank, self.rank)?;
        let size = number(get, self.size, self.rank)?;
        if size <= 1 {
            return Ok(Some(Meeting::Alone));
        }
        // Only the rank is set in the shell of a batch job, which is no rank.
        if self.rank == "SLURM_PROCID" && get(self.also).is_none() {
            return Ok(None);
        }
        if worker >= size {
            let value = worker.to_string();
            let expected = "below the number of ranks";
            return Err(RendezvousError::Variable { variable: self.rank, value, expected });
        }
        let one_host = get(self.local_size).and_then(|local| local.parse().ok()) == Some(size);
        let first_node = || self.nodes.iter().find_map(|name| get(name)).map(|list| first_host(&list));
        let host = get("PHALANX_HOST").or_else(|| get("MASTER_ADDR")).or_else(first_node);
        let host = host.or_else(|| one_host.then(|| "127.0.0.1".to_owned()));
        let host = host.ok_or(RendezvousError::Missing { found: self.rank, missing: "MASTER_ADDR" })?;
        let address = join_host_port(&host, self.port(get)?);
        let serve = (worker == 0).then_some(size);
        Ok(Some(Meeting::At { address, worker, serve, secret: secret.clone() }))
    }

    /// The port that was given, the one after the master's (which the framework may use itself), or one of the job.
    fn port(&self, get: &dyn Fn(&str) -> Option<String>) -> Result<u16, RendezvousError> {
        for (variable, add) in [("PHALANX_PORT", 0), ("MASTER_PORT", 1_u16)] {
            let Some(value) = get(variable) else { continue };
            let port = value.parse::<u16>().ok().and_then(|port| port.checked_add(add));
            let expected = "a port";
            return port.ok_or(RendezvousError::Variable { variable, value, expected });
        }
        let job: String = self.job.iter().filter_map(|name| get(name)).collect();
        let hash = job.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Ok((PORTS.start + hash % (PORTS.end - PORTS.start)) as u16)
    }
}

fn number(
    get: &dyn Fn(&str) -> Option<String>,
    variable: &'static str,
    found: &'static str,
) -> Result<u32, RendezvousError> {
    let value = get(variable).ok_or(RendezvousError::Missing { found, missing: variable })?;
    let number = value.parse();
    number.map_err(|_not_a_number| RendezvousError::Variable { variable, value, expected: "a number" })
}

fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// The first host of a list as Slurm writes it: `n[003-007,9],m1`.
fn first_host(list: &str) -> String {
    let Some((prefix, rest)) = list.split_once('[').filter(|(prefix, _)| !prefix.contains(',')) else {
        return list.split(',').next().unwrap_or(list).to_owned();
    };
    let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let suffix = rest.split_once(']').map_or("", |(_, after)| after.split(',').next().unwrap_or(""));
    format!("{prefix}{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meeting(variables: &[(&str, &str)]) -> Result<Meeting, RendezvousError> {
        Meeting::from_variables(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn at(address: &str, worker: u32, serve: Option<u32>) -> Meeting {
        Meeting::At { address: address.to_owned(), worker, serve, secret: Secret::default() }
    }

    #[test]
    fn without_variables_a_process_is_alone() {
        assert_eq!(meeting(&[]).unwrap(), Meeting::Alone);
        assert_eq!(meeting(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap(), Meeting::Alone);
        // The script of a batch job is no rank.
        assert_eq!(meeting(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]).unwrap(), Meeting::Alone);
    }

    #[test]
    fn the_launcher_comes_first() {
        let found = meeting(&[
            ("PHALANX_RENDEZVOUS", "127.0.0.1:99"),
            ("PHALANX_WORKER", "3"),
            ("PHALANX_SECRET", "0aff"),
            ("RANK", "7"),
            ("WORLD_SIZE", "8"),
        ]);
        let secret = Secret::from_hex("0aff").unwrap();
        let address = "127.0.0.1:99".to_owned();
        assert_eq!(found.unwrap(), Meeting::At { address, worker: 3, serve: None, secret });
    }

    #[test]
    fn other_launchers_meet_at_the_first_host() {
        let torchrun = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h1"), ("MASTER_PORT", "29500")];
        assert_eq!(meeting(&torchrun).unwrap(), at("h1:29501", 0, Some(2)));
        let mut slurm = vec![
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_STEP_NODELIST", "n[003-007,9],m1"),
        ];
        let Meeting::At { address, worker: 5, serve: None, .. } = meeting(&slurm).unwrap() else {
            panic!("rank 5 comes to a server")
        };
        let (host, port) = address.split_once(':').unwrap();
        assert_eq!(host, "n003");
        assert!(PORTS.contains(&port.parse::<u64>().unwrap()));
        slurm[3].1 = "4712";
        assert_ne!(meeting(&slurm).unwrap(), at(&address, 5, None));
        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("PHALANX_PORT", "700"),
        ];
        assert_eq!(meeting(&mpi).unwrap(), at("127.0.0.1:700", 1, None));
        let pmi = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("PHALANX_HOST", "::1"), ("PHALANX_PORT", "7")];
        assert_eq!(meeting(&pmi).unwrap(), at("[::1]:7", 0, Some(2)));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let wrong = meeting(&[("RANK", "two"), ("WORLD_SIZE", "2")]).unwrap_err();
        assert!(matches!(wrong, RendezvousError::Variable { variable: "RANK", .. }));
        let wrong = meeting(&[("RANK", "2"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h")]).unwrap_err();
        assert!(matches!(wrong, RendezvousError::Variable { variable: "RANK", .. }));
        let wrong = meeting(&[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")]).unwrap_err();
        assert!(matches!(wrong, RendezvousError::Missing { missing: "MASTER_ADDR", .. }));
        let wrong = meeting(&[("PHALANX_RENDEZVOUS", "h:1")]).unwrap_err();
        assert!(matches!(wrong, RendezvousError::Missing { missing: "PHALANX_WORKER", .. }));
    }

    #[test]
    fn the_first_host_of_a_list_is_found() {
        assert_eq!(first_host("a,b"), "a");
        assert_eq!(first_host("node7"), "node7");
        assert_eq!(first_host("x,n[1-2]"), "x");
        assert_eq!(first_host("n[12,14]-ib,z"), "n12-ib");
    }
}
