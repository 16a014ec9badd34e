//! Faults of the machine that a process runs on: its clock and its disk.

use signalbox_boxed::boxed;
use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
};

use chrono::{DateTime, TimeDelta, Utc};
use rustix::{
    fs::{StatVfs, StatVfsMountFlags, statvfs},
    system::uname,
};
use signalbox_clock::Clock;
use sqlx::PgPool;

use crate::{clear_fault, report_fault};

/// Clocks that differ by more are a fault: retention and sweeps refuse to delete.
const CLOCK_DIFFERENCE: TimeDelta = TimeDelta::hours(1);
/// With less free space, files cannot be received.
const FREE_BYTES: u64 = 1 << 30;

/// Reports the faults of this machine, and clears those that it or a process before it reported.
#[derive(Debug)]
pub struct Host {
    name: String,
    reported: HashSet<String>,
    /// True until the first check has ended: faults in the table are an earlier process's.
    is_new: bool,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            name: uname().nodename().to_string_lossy().into_owned(),
            reported: HashSet::new(),
            is_new: true,
        }
    }
}

impl Host {
    /// Looks at the clock, and at the disks of `folder`.
    ///
    /// # Errors
    /// The database's error.
    #[boxed]
    pub async fn check(&mut self, pool: &PgPool, folder: &Path) -> Result<(), sqlx::Error> {
        let clock = clock_fault(clock_difference(pool).await?);
        self.note(pool, "clock", clock).await?;
        let disk = match least_space(folder) {
            Ok((fullest, free)) => disk_fault(&fullest, free),
            Err(error) => Some(format!("the folder {} cannot be read: {error}", folder.display())),
        };
        self.note(pool, "disk", disk).await?;
        self.is_new = false;
        Ok(())
    }

    async fn note(&mut self, pool: &PgPool, kind: &str, reason: Option<String>) -> Result<(), sqlx::Error> {
        let part = format!("{kind}.{}", self.name);
        match reason {
            Some(reason) => {
                report_fault(pool, &part, &reason).await?;
                self.reported.insert(part);
            }
            None if self.reported.remove(&part) || self.is_new => {
                clear_fault(pool, &part).await?;
            }
            None => {}
        }
        Ok(())
    }
}

/// Which of `folder` and the folders in it, which may be on disks of their own, has the least space, and its free bytes. Folders on
/// disks that are only read do not count.
///
/// # Errors
/// The folder cannot be read.
pub fn least_space(folder: &Path) -> io::Result<(PathBuf, u64)> {
    let free = |disk: &StatVfs| disk.f_bavail.saturating_mul(disk.f_frsize);
    let mut least = (folder.to_owned(), free(&statvfs(folder)?));
    for entry in folder.read_dir()? {
        let path = entry?.path();
        // Files are on the disk of the folder, and what is gone by now is on none.
        if let Ok(disk) = statvfs(&path)
            && free(&disk) < least.1
            && !disk.f_flag.contains(StatVfsMountFlags::RDONLY)
            && path.is_dir()
        {
            least = (path, free(&disk));
        }
    }
    Ok(least)
}

/// By how much the clock of this machine is at least ahead of PostgreSQL's; negative when it is behind.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn clock_difference(pool: &PgPool) -> Result<TimeDelta, sqlx::Error> {
    let before = Clock::system().now();
    let there: DateTime<Utc> = sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(pool).await?;
    Ok(difference(before, there, Clock::system().now()))
}

/// The difference that a slow answer does not explain, when the other clock was read between two readings of this one.
fn difference(before: DateTime<Utc>, there: DateTime<Utc>, after: DateTime<Utc>) -> TimeDelta {
    if there < before {
        before - there
    } else if there > after {
        after - there
    } else {
        TimeDelta::zero()
    }
}

fn clock_fault(ahead: TimeDelta) -> Option<String> {
    (ahead.abs() > CLOCK_DIFFERENCE).then(|| {
        let word = if ahead > TimeDelta::zero() { "ahead of" } else { "behind" };
        let minutes = ahead.abs().num_minutes();
        format!(
            "the clock of this machine is {minutes} min {word} PostgreSQL's: let both follow a time server, e.g. with chrony"
        )
    })
}

fn disk_fault(folder: &Path, free: u64) -> Option<String> {
    let (folder, megabytes) = (folder.display(), free >> 20);
    (free < FREE_BYTES)
        .then(|| format!("{megabytes} MiB are free in {folder}: free some, files cannot be received"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_answer_is_no_difference_of_clocks() {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        for (there, expected) in [(0, 0), (7, 0), (10, 0), (-3, 3), (13, -3)] {
            assert_eq!(difference(at(0), at(there), at(10)), TimeDelta::seconds(expected), "{there}");
        }
    }

    #[test]
    fn clocks_that_differ_by_more_than_an_hour_are_a_fault() {
        assert_eq!(clock_fault(TimeDelta::minutes(60)), None);
        assert_eq!(clock_fault(TimeDelta::minutes(-60)), None);
        assert!(clock_fault(TimeDelta::minutes(61)).unwrap().contains("61 min ahead of"));
        assert!(clock_fault(TimeDelta::days(-1)).unwrap().contains("1440 min behind"));
    }

    #[test]
    fn less_than_a_gibibyte_of_free_space_is_a_fault() {
        assert_eq!(disk_fault(Path::new("/data"), FREE_BYTES), None);
        assert!(disk_fault(Path::new("/data"), 5 << 20).unwrap().starts_with("5 MiB are free in /data"));
    }

    #[test]
    fn a_folder_within_may_be_on_a_disk_of_its_own() {
        let folder = std::env::temp_dir().join(format!("signalbox-host-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // A file system on which nothing is free.
        std::os::unix::fs::symlink("/proc", folder.join("blobs")).unwrap();
        let (fullest, free) = least_space(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((fullest, free), (folder.join("blobs"), 0));
    }
}
