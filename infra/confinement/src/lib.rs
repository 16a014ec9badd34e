//! What a process gives up before it looks at what strangers made: memory without limit, the network, other processes,
//! changing files, and reading files other than the system's own.
//!
//! Linux only: rlimits, Landlock, seccomp. On a kernel without Landlock, reading files stays allowed.

mod calls;

use std::{io, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

/// Where libraries lie.
const SYSTEM: [&str; 5] = ["/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/proc/self"];
/// What takes everything and says nothing.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/urandom"];
/// Open files.
const FILES: u64 = 64;

/// What a process keeps.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// Address space, in bytes.
    pub memory_bytes: u64,
    /// Files and folders that it reads, besides the system's libraries; those that are not there are passed over.
    pub readable: Vec<PathBuf>,
    /// Whether it is yet to become another program, which lies among what can be read.
    pub becomes_another: bool,
}

impl Confinement {
    /// Takes everything else from this process, for good.
    ///
    /// # Errors
    /// The kernel refuses a restriction. Some of them may hold then.
    pub fn confine(self) -> io::Result<()> {
        // Without this, a process whose parent was killed would work on for nobody.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        for (resource, most) in [
            (Resource::As, self.memory_bytes),
            (Resource::Nofile, FILES),
            (Resource::Fsize, 0),
            (Resource::Core, 0),
        ] {
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        restrict_files(self.readable).map_err(io::Error::other)?;
        for filter in calls::filters(self.becomes_another).map_err(io::Error::other)? {
            seccompiler::apply_filter_all_threads(&filter).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

fn restrict_files(readable: Vec<PathBuf>) -> Result<(), RulesetError> {
    let abi = ABI::V1;
    let system = SYSTEM.iter().map(PathBuf::from);
    let readable: Vec<_> = system.chain(readable).filter(|path| path.exists()).collect();
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(&readable, AccessFs::from_read(abi)))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?;
    rules.restrict_self().map(drop)
}

#[cfg(test)]
mod tests {
    use std::{
        env, fs,
        net::{TcpListener, TcpStream},
        process::Command,
        thread,
    };

    use super::*;

    const ADDRESS: &str = "ADDRESS_OF_A_LISTENER";
    const FILE: &str = "PATH_OF_A_FILE";

    /// What is taken is taken from a whole process, so this test starts itself again.
    #[test]
    fn a_confined_process_has_no_network_no_files_and_no_other_processes() {
        if let (Ok(address), Ok(file)) = (env::var(ADDRESS), env::var(FILE)) {
            return inside(&address, &file);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut child = Command::new(env::current_exe().unwrap());
        let name = "tests::a_confined_process_has_no_network_no_files_and_no_other_processes";
        child.args(["--exact", name, "--nocapture"]);
        child.env(ADDRESS, listener.local_addr().unwrap().to_string()).env(FILE, file.path());
        let output = child.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("everything was refused"), "{said}");
        // The one from before it was confined.
        listener.accept().unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    fn inside(address: &str, file: &str) {
        drop(TcpStream::connect(address).unwrap());
        fs::read(file).unwrap();
        Confinement { memory_bytes: 1 << 32, readable: Vec::new(), becomes_another: false }
            .confine()
            .unwrap();
        let refused = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        refused(TcpStream::connect(address).unwrap_err());
        refused(TcpListener::bind("127.0.0.1:0").unwrap_err());
        refused(std::os::unix::net::UnixStream::connect("/nowhere").unwrap_err());
        refused(Command::new("/usr/bin/true").spawn().unwrap_err());
        refused(fs::remove_file(file).unwrap_err());
        // On a kernel without Landlock, files may be opened.
        if let Err(error) = fs::read(file) {
            refused(error);
            refused(fs::write(file, b"x").unwrap_err());
        }
        // What parsers do: threads, of which some are nice.
        thread::spawn(|| rustix::process::nice(5).unwrap()).join().unwrap();
        refused(rustix::process::setpriority_user(rustix::process::getuid(), 19).unwrap_err().into());
        println!("everything was refused");
    }
}
