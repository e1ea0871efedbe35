//! Sizes from the machine: how many readers, how much cache, how large a result.
//!
//! A node in a container must not size itself for the host. [`Limits::read`] takes the
//! smallest of what the cgroup (v1 or v2, all levels up to the root), the scheduler and the
//! machine allow, and remembers who said so; [`Sizes::derive`] is a pure function from that
//! and the configuration. A configured value always wins. Every size is logged at start
//! with its origin, so that nobody has to guess why a node has three readers.

use std::path::{Path, PathBuf};

use crate::config::Config;

const MIB: u64 = 1 << 20;

/// What this process may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// CPUs, in fractions as cgroups count.
    pub cpus: f64,
    /// Who says so.
    pub cpus_from: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Who says so.
    pub memory_from: String,
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// The key it belongs to.
    pub key: &'static str,
    /// The value.
    pub value: u64,
    /// `configured`, or derived from what.
    pub origin: String,
}

/// Every derived value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Threads of the async runtime.
    pub workers: Size,
    /// `sql.readers`
    pub readers: Size,
    /// `sql.transactions_max`
    pub transactions_max: Size,
    /// `sql.cache`
    pub cache: Size,
    /// `sql.result_bytes_max`
    pub result_bytes_max: Size,
    /// `http.request_memory`
    pub request_memory: Size,
}

impl Limits {
    /// Asks the kernel.
    pub fn read() -> Self {
        let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self::from_system(Path::new("/sys/fs/cgroup"), &cgroups, &meminfo, cpus)
    }

    /// The same from given texts: `/proc/self/cgroup`, `/proc/meminfo`, and the CPUs the
    /// scheduler lets this process use.
    pub fn from_system(mount: &Path, cgroups: &str, meminfo: &str, cpus: usize) -> Self {
        let mut limits = Self {
            cpus: cpus as f64,
            cpus_from: "the CPUs this process may use".into(),
            memory: total_memory(meminfo).unwrap_or(1 << 30),
            memory_from: "the machine's memory".into(),
        };
        for dir in cgroup_dirs(mount, cgroups) {
            limits.lower_by(&dir);
        }
        limits
    }

    fn lower_by(&mut self, dir: &Path) {
        if let Some(cpus) = cpu_quota(dir)
            && cpus < self.cpus
        {
            self.cpus = cpus;
            self.cpus_from = format!("the CPU quota of {}", dir.display());
        }
        let memory = ["memory.max", "memory.high", "memory.limit_in_bytes"];
        for file in memory {
            if let Some(bytes) = number(&dir.join(file))
                && bytes < self.memory
            {
                self.memory = bytes;
                self.memory_from = dir.join(file).display().to_string();
            }
        }
    }
}

impl Sizes {
    /// Derives what is not configured.
    pub fn derive(config: &Config, limits: &Limits) -> Self {
        let mut limits = limits.clone();
        if let Some(memory) = config.node.memory {
            (limits.memory, limits.memory_from) = (memory, "node.memory".into());
        }
        if let Some(cpus) = config.node.cpus {
            (limits.cpus, limits.cpus_from) = (cpus as f64, "node.cpus".into());
        }
        let cpus = limits.cpus.ceil().max(1.0) as u64;
        let memory = limits.memory;
        let by_cpu = format!(
            "derived from {:.1} CPUs ({})",
            limits.cpus, limits.cpus_from
        );
        let by_memory = format!(
            "derived from {} MiB of memory ({})",
            memory / MIB,
            limits.memory_from
        );
        let size = |key, configured: Option<u64>, derived, origin: &String| Size {
            key,
            value: configured.unwrap_or(derived),
            origin: match configured {
                Some(_) => "configured".to_owned(),
                None => origin.clone(),
            },
        };
        let sql = &config.sql;
        let readers = size("sql.readers", sql.readers, cpus.clamp(2, 32), &by_cpu);
        let fit = (memory / (8 * MIB)).max(4);
        let transactions_max = size(
            "sql.transactions_max",
            sql.transactions_max,
            (cpus * 16).clamp(16, 256).min(fit),
            &by_cpu,
        );
        // Transactions seldom fill their caches all at once: half of them count.
        let connections = readers.value + transactions_max.value / 2 + 4;
        let cache = (memory / 10 / connections).clamp(MIB, 8 * MIB);
        let request = (memory / 8).max(config.http.request_bytes_max);
        Self {
            workers: size("runtime workers", config.node.cpus, cpus, &by_cpu),
            cache: size("sql.cache", sql.cache, cache, &by_memory),
            result_bytes_max: size(
                "sql.result_bytes_max",
                sql.result_bytes_max,
                (memory / 8).clamp(16 * MIB, 256 * MIB),
                &by_memory,
            ),
            request_memory: size(
                "http.request_memory",
                config.http.request_memory,
                request,
                &by_memory,
            ),
            readers,
            transactions_max,
        }
    }

    /// All of them, for the log.
    pub fn iter(&self) -> impl Iterator<Item = &Size> {
        [
            &self.workers,
            &self.readers,
            &self.transactions_max,
            &self.cache,
            &self.result_bytes_max,
            &self.request_memory,
        ]
        .into_iter()
    }
}

/// The directories of this process's cgroups and all their parents. In a container the path
/// may be the host's and not exist below the mount; then the mount itself is the cgroup.
fn cgroup_dirs(mount: &Path, cgroups: &str) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let root = match controllers {
            "" => mount.to_owned(),
            _ if controllers.split(',').any(|c| c == "cpu" || c == "memory") => {
                mount.join(controllers)
            }
            _ => continue,
        };
        let mut dir = root.join(path.trim_start_matches('/'));
        if !dir.is_dir() {
            dir = root.clone();
        }
        while dir.starts_with(&root) {
            dirs.push(dir.clone());
            if !dir.pop() {
                break;
            }
        }
    }
    dirs
}

fn cpu_quota(dir: &Path) -> Option<f64> {
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
        None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
    };
    // "max" and -1 mean no limit; neither parses as an unsigned number.
    let quota: u64 = quota.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok()?;
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// A file with one number; "max" is none.
fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Low;

    const MEMINFO: &str = "MemTotal:       16777216 kB\nMemFree: 1 kB\n";

    fn write(dir: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().expect("has a parent")).expect("creates");
            std::fs::write(path, text).expect("writes");
        }
    }

    fn limits(cpus: f64, memory: u64) -> Limits {
        Limits {
            cpus,
            cpus_from: "a test".into(),
            memory,
            memory_from: "a test".into(),
        }
    }

    fn config() -> Config {
        Config::resolve(&Low::default()).expect("defaults work")
    }

    #[test]
    fn version_two_takes_the_smallest_limit_of_all_levels() {
        let dir = tempfile::tempdir().expect("a directory");
        write(
            dir.path(),
            &[
                ("a/cpu.max", "400000 100000\n"),
                ("a/memory.max", "1073741824\n"),
                ("a/b/cpu.max", "max 100000\n"),
                ("a/b/memory.max", "max\n"),
            ],
        );
        let limits = Limits::from_system(dir.path(), "0::/a/b\n", MEMINFO, 8);
        assert_eq!((limits.cpus, limits.memory), (4.0, 1 << 30));
        assert!(limits.memory_from.ends_with("a/memory.max"));
    }

    #[test]
    fn version_one_has_a_directory_for_each_controller() {
        let dir = tempfile::tempdir().expect("a directory");
        write(
            dir.path(),
            &[
                ("cpu,cpuacct/x/cpu.cfs_quota_us", "150000\n"),
                ("cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"),
                ("memory/x/memory.limit_in_bytes", "268435456\n"),
            ],
        );
        let cgroups = "5:cpu,cpuacct:/x\n4:memory:/x\n3:pids:/x\n";
        let limits = Limits::from_system(dir.path(), cgroups, MEMINFO, 8);
        assert_eq!((limits.cpus, limits.memory), (1.5, 256 << 20));
    }

    #[test]
    fn a_path_of_the_host_falls_back_to_the_mount_and_no_limit_to_the_machine() {
        let dir = tempfile::tempdir().expect("a directory");
        write(
            dir.path(),
            &[("memory.max", "536870912\n"), ("cpu.max", "max 100000\n")],
        );
        let limits = Limits::from_system(dir.path(), "0::/docker/abc\n", MEMINFO, 3);
        assert_eq!((limits.cpus, limits.memory), (3.0, 512 << 20));
        let nothing = Limits::from_system(Path::new("/nonexistent"), "", MEMINFO, 3);
        assert_eq!(nothing.memory, 16 << 30);
    }

    #[test]
    fn a_small_container_gets_small_sizes_and_a_large_one_is_bounded() {
        let small = Sizes::derive(&config(), &limits(0.5, 128 * MIB));
        assert_eq!(small.readers.value, 2);
        assert_eq!(small.cache.value, MIB);
        assert_eq!(small.result_bytes_max.value, 16 * MIB);
        assert_eq!(small.transactions_max.value, 16);
        let large = Sizes::derive(&config(), &limits(64.0, 512 << 30));
        assert_eq!(large.readers.value, 32);
        assert_eq!(large.cache.value, 8 * MIB);
        assert_eq!(large.result_bytes_max.value, 256 * MIB);
    }

    #[test]
    fn a_configured_value_wins_and_says_so() {
        let mut config = config();
        config.sql.readers = Some(7);
        let sizes = Sizes::derive(&config, &limits(2.0, 1 << 30));
        assert_eq!(sizes.readers.value, 7);
        assert_eq!(sizes.readers.origin, "configured");
    }
}
