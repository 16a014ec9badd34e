//! Upload of a bundle of firmware, straight into the blob store: hashed on the way. A failure leaves nothing behind, at the
//! latest after a day.

use axum::{
    extract::{Request, State},
    response::Response,
};
use multer::Field;
use serde::Serialize;
use signalbox_blob_store::{BlobKey, BlobStore, Receive, Received, Start};
use signalbox_config::Config;
use signalbox_documents::Share;
use signalbox_domain::{
    fleet::{Firmware, FirmwareBundle, FirmwareCommand, NewFirmware},
    kernel::{FirmwareUpdateId, ReleaseVersion},
};
use signalbox_projections::fleet::firmware::firmware_of;
use utoipa::ToSchema;

use super::{
    firmware::{FirmwareOut, shown, valid_digest, valid_signature, valid_version},
    upload::with_separators,
};
use crate::{
    answer,
    auth::{Admin, CurrentUser},
    context::RequestContext,
    extraction::upload_place,
    fleet::services::FleetServices,
    form::{OPTIONS, empty, filename, multipart, option, refused, unreadable},
    idempotency::{Begun, Once, digest},
    problem::{Problem, ProblemOut},
    resource::after_write,
    services::replica::Database,
    staged::{Staged, Staging},
};

/// Name of a bundle in its folder of the blob store.
const BUNDLE: &str = "bundle";
/// Suffixes of bundle names.
const ENDINGS: [&str; 2] = [".tar.gz", ".tgz"];

/// An uploaded bundle and its update.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FirmwareUploadedOut {
    message: String,
    #[serde(flatten)]
    firmware: FirmwareOut,
}

/// A form with a bundle.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "it describes the form, which is read piece by piece")]
pub(crate) struct FirmwareUploadIn {
    /// The bundle, named `….tar.gz`, of at most 500 MB.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
    /// Three numbers; if absent, those at the end of the file's name, as in `firmware-1.4.0.tar.gz`.
    version: Option<String>,
    /// For a version that is new.
    changelog: Option<String>,
    /// The SHA-256 that the bundle must have.
    file_hash_sha256: Option<String>,
    /// Signature of the bundle, as minisign writes it.
    signature: Option<String>,
}

/// The content of a form.
struct Form {
    file_name: String,
    bundle: FirmwareBundle,
    /// The other fields.
    fields: Vec<(String, String)>,
    staged: Staged,
}

/// Upload the bundle of a firmware update. The update is made if there is none of this version.
#[utoipa::path(post, path = "/api/v1/ota/upload", tag = "firmware", security(("jwt" = [])), operation_id = "upload_firmware",
    request_body(content = FirmwareUploadIn, content_type = "multipart/form-data"),
    responses((status = 201, body = FirmwareUploadedOut), (status = 400, body = ProblemOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 413, body = ProblemOut), (status = 422, body = ProblemOut), (status = 503, body = ProblemOut)))]
pub(crate) async fn upload(
    State(services): State<FleetServices>,
    Admin(user): Admin,
    Once(once): Once,
    mut context: RequestContext,
    request: Request,
) -> Result<Response, Problem> {
    let uri = request.uri().clone();
    let _place = upload_place(&services.config, &services.uploads, &Share::user(user.id)).await?;
    let form = receive(&services.config, &services.blobs, &services.staging, request).await?;
    let Some(once) = once else { return record(&services.database, &user, &context, form).await };
    match once.begin(&services.repetitions, &digest(&uri, &form.digest())).await? {
        Begun::Before(first) => Ok(first),
        Begun::Now(seed) => {
            context.resource = seed;
            context.keyed = Some(once.clone());
            let response = record(&services.database, &user, &context, form).await?;
            once.keep(&services.repetitions, seed, response).await
        }
    }
}

async fn receive(
    config: &Config,
    blobs: &BlobStore,
    staging: &Staging,
    request: Request,
) -> Result<Form, Problem> {
    let most = config.firmware.max_file_bytes;
    let mut parts = multipart(request, most, most, missing)?;
    let (mut file, mut fields) = (None, Vec::new());
    while let Some(field) = parts.next_field().await.map_err(|error| unreadable(&error, most))? {
        let name = field.name().unwrap_or_default().to_owned();
        if name == "file" {
            if file.is_some() {
                return Err(Problem::field("file", "must be sent once: an update has one bundle"));
            }
            file = Some(receive_file(blobs, staging, field, most).await?);
        } else if fields.len() < OPTIONS {
            fields.push((name, option(field, most).await?));
        }
    }
    let (file_name, bundle, staged) = file.ok_or_else(missing)?;
    Ok(Form { file_name, bundle, fields, staged })
}

async fn receive_file(
    blobs: &BlobStore,
    staging: &Staging,
    field: Field<'static>,
    most: u64,
) -> Result<(String, FirmwareBundle, Staged), Problem> {
    let file_name = filename(&field)?;
    if !ENDINGS.iter().any(|ending| file_name.to_ascii_lowercase().ends_with(ending)) {
        return Err(Problem::malformed("file must be a .tar.gz archive"));
    }
    let staged = Staged::begin(staging).await?;
    let blob = staged.id();
    let request = Receive { start: Start::Anew, limit: most, expected_sha256: None, total: None };
    let received = blobs.receive(&BlobKey::new(blob, BUNDLE), request, field, |_| {}).await;
    match received.map_err(|error| refused(error, most))? {
        Received::Complete { size: 0, .. } => Err(empty()),
        Received::Complete { size, sha256 } => Ok((file_name, FirmwareBundle { blob, size, sha256 }, staged)),
        Received::Partial { .. } => Err(Problem::internal(&"a bundle was stored in part")),
    }
}

fn missing() -> Problem {
    Problem::field("file", "is required: send multipart/form-data with the bundle in a part named file")
}

impl Form {
    fn field(&self, name: &str) -> Option<String> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn version(&self) -> Result<ReleaseVersion, Problem> {
        match self.field("version").filter(|version| !version.trim().is_empty()) {
            Some(version) => valid_version(&version),
            None => version_in(&self.file_name).ok_or_else(|| {
                Problem::field(
                    "version",
                    "is required: send it as a field, or name the file like firmware-1.4.0.tar.gz",
                )
            }),
        }
    }

    /// Identifies this form among others.
    fn digest(&self) -> Vec<u8> {
        format!("{:?} {:?} {}", self.fields, self.file_name, self.bundle.sha256).into_bytes()
    }
}

/// The version at the end of a file's name.
fn version_in(file_name: &str) -> Option<ReleaseVersion> {
    let lower = file_name.to_ascii_lowercase();
    let stem = ENDINGS.iter().find_map(|ending| lower.strip_suffix(ending))?;
    let last = stem.rsplit(['-', '_']).next()?;
    last.strip_prefix('v').unwrap_or(last).parse().ok()
}

async fn record(
    database: &Database,
    user: &CurrentUser,
    context: &RequestContext,
    form: Form,
) -> Result<Response, Problem> {
    let version = form.version()?;
    let (sha256, signature) =
        (valid_digest(form.field("file_hash_sha256"))?, valid_signature(form.field("signature"))?);
    if sha256.as_ref().is_some_and(|sha256| *sha256 != form.bundle.sha256) {
        let actual = &form.bundle.sha256;
        return Err(Problem::malformed(format!(
            "file_hash_sha256 is not that of the file, which is {actual}"
        )));
    }
    let known = firmware_of(&database.primary, version).await?.filter(|row| row.id.0 != context.resource);
    let (id, command) = match known {
        Some(row) => (row.id, FirmwareCommand::AddBundle { bundle: form.bundle.clone(), signature }),
        None => {
            let new = NewFirmware {
                owner: user.id,
                version,
                changelog: form.field("changelog"),
                download_url: None,
                sha256,
                signature,
                bundle: Some(form.bundle.clone()),
            };
            (FirmwareUpdateId(context.resource), FirmwareCommand::Create(new))
        }
    };
    let metadata = context.metadata(user.actor(), "upload firmware");
    let written = form.staged.hand_over::<Firmware>(id.0, &metadata, &command).await?;
    let (resource_version, firmware) = after_write(|| shown(database, id, written.unseen)).await?;
    let size = with_separators(form.bundle.size);
    let message = format!("{} ({size} bytes) uploaded as firmware {version}.", form.file_name);
    let out = FirmwareUploadedOut { message, firmware };
    Ok(answer::created(written, &format!("/api/v1/ota/{id}"), resource_version, &out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_at_the_end_of_a_name() {
        for (name, version) in [
            ("webmacs-update-1.4.0.tar.gz", Some("1.4.0")),
            ("firmware_v2.0.10.TGZ", Some("2.0.10")),
            ("3.1.4.tar.gz", Some("3.1.4")),
            ("firmware.tar.gz", None),
            ("firmware-1.4.0-rc1.tar.gz", None),
            ("firmware-1.4.0.zip", None),
        ] {
            assert_eq!(version_in(name).map(String::from).as_deref(), version, "{name}");
        }
    }
}
