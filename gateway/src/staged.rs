//! Files on their way from a request into the log.
//!
//! A command names the file, so the file stays until the outcome is known: the client may disconnect, there may be no
//! answer, or the gateway may crash while the command is carried out all the same. The workers' sweep checks the
//! remaining files against the log. Files that certainly belong to no command are deleted at once. Why:
//! docs/adr/0026-files-before-their-events.md.

use signalbox_blob_store::BlobStore;
use signalbox_clock::Clock;
use signalbox_database::{note_staged, offer_staged};
use signalbox_domain::kernel::{Decider, ErrorKind, Metadata, Rejection};
use signalbox_event_store::mentions;
use uuid::Uuid;

use crate::{
    context_services::services,
    problem::Problem,
    services::{commands::Commands, replica::Database},
    state::Written,
};

services! {
    /// Services that files on their way need.
    Staging {
        blobs: BlobStore,
        clock: Clock,
        commands: Commands,
        database: Database,
    }
}

/// A file in the blob store that nothing in the log refers to yet. Dropped, it is removed, unless a command may have named
/// it by then.
pub(crate) struct Staged {
    staging: Staging,
    id: Uuid,
    is_kept: bool,
}

impl Staged {
    /// Notes a file that is about to come, so that it is found again whatever happens.
    pub(crate) async fn begin(staging: &Staging) -> Result<Self, Problem> {
        let id = staging.clock.new_id();
        note_staged(&staging.database.primary, id, staging.clock.manual_time()).await?;
        Ok(Self { staging: staging.clone(), id, is_kept: false })
    }

    /// Names the file in the blob store and in the command.
    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// Sends the command that makes the log refer to the file. The file is removed if the command was not sent, was refused,
    /// or was carried out before with another file.
    pub(crate) async fn hand_over<D: Decider>(
        mut self,
        aggregate: Uuid,
        metadata: &Metadata,
        command: &D::Command,
    ) -> Result<Written, Problem> {
        // Else files would pile up while NATS is away.
        self.staging.commands.reach_bus().await?;
        self.offer::<D>(aggregate).await?;
        let written = self.staging.commands.write::<D>(aggregate, None, metadata, command).await;
        if may_be_spare(&written) {
            self.is_kept = mentions(&self.staging.database.primary, D::TYPE, aggregate, self.id).await?;
        }
        Ok(written?)
    }

    /// From now on the log may refer to the file.
    async fn offer<D: Decider>(&mut self, aggregate: Uuid) -> Result<(), Problem> {
        let (aggregate, now) = ((D::TYPE, aggregate), self.staging.clock.manual_time());
        if !offer_staged(&self.staging.database.primary, self.id, aggregate, now).await? {
            let message = "The file took more than a day to come and was given up: send it again.";
            return Err(Problem::unavailable(message));
        }
        self.is_kept = true;
        Ok(())
    }
}

/// Whether the file may be one too many: the outcome is known, and may be that of another file. A command that is said to have been carried out
/// before may have been so a moment ago, with this very file: its answer was lost, and the bus has asked again.
fn may_be_spare(written: &Result<Written, Rejection>) -> bool {
    match written {
        Ok(written) => written.repeated,
        Err(rejection) => rejection.kind != ErrorKind::Unavailable,
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let (blobs, id) = (self.staging.blobs.clone(), self.id);
        tokio::spawn(async move {
            if let Err(error) = blobs.delete_transfer(id).await {
                tracing::warn!(%error, %id, "an unused file stays until the sweep");
            }
        });
    }
}
