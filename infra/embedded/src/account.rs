//! The user account of a server, and its launch: the server never outlives this process.
//!
//! PostgreSQL refuses to run as root, so root runs it as another user. That user may be unable to enter a data folder
//! that lies below a closed one, as in a clone made by root. Opening the parents would be wrong; instead the server
//! gets one capability that lets it pass (reads only, where this process has it to give).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use crate::error::EmbeddedError;
use crate::locate;

const DEFAULT_USER: &str = "postgres";
const USER_VARIABLE: &str = "SIGNALBOX_POSTGRES_USER";
/// Names for `setpriv` and bits in the kernel's sets; the narrower one first.
const PASSING_CAPABILITIES: [(&str, u32); 2] = [("dac_read_search", 2), ("dac_override", 1)];

/// The user that PostgreSQL runs as: this process's own, or another one when this process is root.
#[derive(Debug)]
pub(crate) struct Account {
    other: Option<OtherUser>,
}

#[derive(Debug)]
struct OtherUser {
    name: String,
    uid: u32,
    gid: u32,
    capability: Option<&'static str>,
}

impl Account {
    pub(crate) fn for_postgres() -> Result<Self, EmbeddedError> {
        if !geteuid().is_root() {
            return Ok(Self { other: None });
        }
        let name = std::env::var(USER_VARIABLE).unwrap_or_else(|_| DEFAULT_USER.to_owned());
        let (uid, gid) = look_up(&name)?;
        Ok(Self { other: Some(OtherUser { name, uid, gid, capability: None }) })
    }

    /// The user and group that the server's own folder must belong to, when they are not this process's.
    pub(crate) fn owner(&self) -> Option<(u32, u32)> {
        self.other.as_ref().map(|user| (user.uid, user.gid))
    }

    /// Makes sure that the server can enter `data_dir`, with a capability if that is what it takes.
    pub(crate) fn reach(&mut self, data_dir: &Path) -> Result<(), EmbeddedError> {
        let Some(user) = &mut self.other else { return Ok(()) };
        if user.can_enter(data_dir)? {
            return Ok(());
        }
        let held = permitted_capabilities();
        let found = PASSING_CAPABILITIES.iter().find(|(_, bit)| held & (1 << bit) != 0);
        let Some((capability, _)) = found else {
            return Err(EmbeddedError::Unreachable {
                user: user.name.clone(),
                data_dir: data_dir.to_owned(),
            });
        };
        user.capability = Some(capability);
        Ok(())
    }

    /// A command that runs `program` as this user; the kernel sends it `death_signal` when this process ends.
    pub(crate) fn command(&self, program: &Path, death_signal: &str) -> Result<Command, EmbeddedError> {
        let mut command = tied(death_signal)?;
        if let Some(user) = &self.other {
            command.args(user.setpriv_arguments());
        }
        command.arg(program);
        Ok(command)
    }
}

impl OtherUser {
    fn setpriv_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--reuid={}", self.uid),
            format!("--regid={}", self.gid),
            "--clear-groups".to_owned(),
        ];
        if let Some(capability) = self.capability {
            arguments.push(format!("--inh-caps=-all,+{capability}"));
            arguments.push(format!("--ambient-caps=-all,+{capability}"));
        }
        arguments
    }

    /// Asks the kernel, which knows of modes, access lists and mount options alike.
    fn can_enter(&self, folder: &Path) -> Result<bool, EmbeddedError> {
        let mut command = Command::new(setpriv()?);
        command.args(self.setpriv_arguments()).args(["test", "-x"]).arg(folder);
        Ok(command.status().map_err(EmbeddedError::run("setpriv"))?.success())
    }
}

/// A command that runs a program as this process's own user; the kernel sends it `death_signal` when this process
/// ends.
pub(crate) fn own_command(program: &Path, death_signal: &str) -> Result<Command, EmbeddedError> {
    let mut command = tied(death_signal)?;
    command.arg(program);
    Ok(command)
}

/// `setpriv` sets the signal and then becomes the program, so that both are one process. The environment is not passed
/// on: it holds secrets, and settings that would change how the servers behave.
fn tied(death_signal: &str) -> Result<Command, EmbeddedError> {
    let mut command = Command::new(setpriv()?);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C").current_dir("/");
    command.arg(format!("--pdeathsig={death_signal}"));
    Ok(command)
}

fn setpriv() -> Result<PathBuf, EmbeddedError> {
    locate::on_path("setpriv").ok_or_else(|| EmbeddedError::Missing {
        program: "setpriv",
        searched: "the PATH".to_owned(),
        remedy: "install the system's package util-linux",
    })
}

fn look_up(name: &str) -> Result<(u32, u32), EmbeddedError> {
    let number = |option| -> Result<u32, EmbeddedError> {
        let output =
            Command::new("id").arg(option).arg("--").arg(name).output().map_err(EmbeddedError::run("id"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().map_err(|_| EmbeddedError::NoSuchUser { user: name.to_owned() })
    };
    Ok((number("-u")?, number("-g")?))
}

/// The capabilities that this process may pass on, as the kernel's bit set.
fn permitted_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap_or_default();
    u64::from_str_radix(set.trim(), 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_is_named() {
        let error = look_up("no-such-user-here").unwrap_err();
        assert!(error.to_string().contains("the system user no-such-user-here does not exist"), "{error}");
    }

    #[test]
    fn children_get_no_environment_but_path_and_locale() {
        let command = own_command(Path::new("/bin/true"), "TERM").unwrap();
        let names: Vec<_> =
            command.get_envs().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect();
        assert_eq!(names, ["LC_ALL", "PATH"]);
    }
}
