//! Upload of a wheel: received, checked, unpacked, described, recorded. A failure leaves nothing behind, at the latest after
//! a day.

use std::{
    fs::File,
    io::{Seek, SeekFrom},
};

use axum::{
    extract::{Request, State},
    http::header,
    response::Response,
};
use multer::{Constraints, Field, Multipart, SizeLimit};
use serde::Serialize;
use sha2::{Digest, Sha256};
use signalbox_blob_store::{Receive, Start};
use signalbox_config::Config;
use signalbox_domain::{
    fleet::{NewPackage, PluginClass, PluginPackage, PluginPackageCommand},
    kernel::{ErrorKind, Sha256Hex},
};
use signalbox_plugins::{DescribeError, MAX_WHEEL_BYTES, Plugins, Question, Wheel, WheelError};
use signalbox_projections::fleet::{PackageRow, queries};
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{classes, packages};
use crate::{
    answer,
    auth::{Admin, CurrentUser},
    context::RequestContext,
    extract::content_length,
    fleet::services::FleetServices,
    idempotency::{Begun, Once, digest},
    problem::{Problem, ProblemKind, ProblemOut},
    services::{commands::Commands, replica::Database, wheels::Wheels},
    state::Written,
};

/// Most bytes of a form besides the wheel.
const OTHER_FIELDS: u64 = 64 << 10;
/// Longest name of a file, in bytes.
const NAME_BYTES: usize = 255;

/// An installed package.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PackageInstalledOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: String,
    public_id: String,
    package_name: String,
    version: String,
    /// The plugin classes that it offers.
    plugin_ids: Vec<String>,
}

/// A form with a wheel.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "it describes the form, which is read piece by piece")]
pub(crate) struct WheelIn {
    /// The wheel, named `….whl`, of at most 50 MB.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// A wheel that was received.
struct Received {
    file: File,
    file_name: String,
    size: u64,
    sha256: Sha256Hex,
}

/// Upload a wheel with plugins, in a field `file` of a form. It is checked, and its plugins are found out; controllers
/// fetch it from here.
#[utoipa::path(post, path = "/api/v1/plugins/packages/upload", tag = "plugins", security(("jwt" = [])), operation_id = "upload_plugin_package",
    request_body(content = WheelIn, content_type = "multipart/form-data"),
    responses((status = 201, body = PackageInstalledOut), (status = 400, body = ProblemOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 413, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn upload(
    State(services): State<FleetServices>,
    Admin(user): Admin,
    Once(once): Once,
    mut context: RequestContext,
    request: Request,
) -> Result<Response, Problem> {
    let uri = request.uri().clone();
    let received = receive(&services.config, request).await?;
    let Some(once) = once else {
        return install(
            &services.database,
            &services.commands,
            &services.wheels,
            &services.plugins,
            &user,
            &context,
            received,
        )
        .await;
    };
    let what = format!("{}/{}", received.sha256, received.file_name);
    match once.begin(&services.repetitions, &digest(&uri, what.as_bytes())).await? {
        Begun::Before(first) => Ok(first),
        Begun::Now(seed) => {
            context.resource = seed;
            context.keyed = Some(once.clone());
            let response = install(
                &services.database,
                &services.commands,
                &services.wheels,
                &services.plugins,
                &user,
                &context,
                received,
            )
            .await?;
            once.keep(&services.repetitions, seed, response).await
        }
    }
}

async fn install(
    database: &Database,
    commands: &Commands,
    wheels: &Wheels,
    plugins: &Plugins,
    user: &CurrentUser,
    context: &RequestContext,
    received: Received,
) -> Result<Response, Problem> {
    let id = context.resource;
    let (sha256, size, file_name) = (received.sha256.clone(), received.size, received.file_name.clone());
    let installed = queries::packages(&database.primary).await?;
    if let Some(package) = installed.iter().find(|package| package.id == id) {
        // By this request, whose answer was lost.
        return Ok(answer_installed(Written { repeated: true, ..Written::default() }, package.into()));
    }
    if installed.iter().any(|package| package.file_name == file_name) {
        return Err(taken(format!(
            "{file_name} is installed already: uninstall it before uploading it again"
        )));
    }
    let is_shared = installed.iter().any(|package| package.sha256 == sha256.as_str());
    // Removed with the package if it is refused.
    let unpacked = (!is_shared).then(|| sha256.clone());
    let (file, name, version) = unpack(plugins, received).await?;
    if installed.iter().any(|package| package.name == name) {
        return Err(taken(format!(
            "{name} is installed already: uninstall it before uploading another version"
        )));
    }
    let classes = match describe(plugins, &sha256).await {
        Ok(classes) => classes,
        Err(problem) => {
            // A repetition may be looking at it.
            if problem.kind() != ProblemKind::Unavailable {
                packages::forget_unpacked(plugins, id, unpacked).await;
            }
            return Err(problem);
        }
    };
    let plugin_ids = classes.iter().map(|class| class.id.clone()).collect();
    // A wheel that was not kept may have made way for that of a repetition, so it is left to the sweep.
    keep(wheels, id, file, size).await?;
    let installed = Installed { id, name: name.clone(), version: version.clone(), size, plugin_ids };
    let new = NewPackage { owner: user.id, name, version, file_name, size, sha256, classes };
    let metadata = context.metadata(user.actor(), "install plugin package");
    let command = PluginPackageCommand::Install(new);
    let written = commands.write::<PluginPackage>(id, None, &metadata, &command).await;
    // Whether it was installed is not known, without an answer: then the sweep finds out.
    if written.as_ref().is_err_and(|rejection| rejection.kind != ErrorKind::Unavailable) {
        packages::forget(wheels, plugins, id, unpacked).await;
    }
    let written = written.map_err(|rejection| Problem::from(rejection).about("file"))?;
    Ok(answer_installed(written, installed))
}

/// The reported facts of a package that was installed.
struct Installed {
    id: Uuid,
    name: String,
    version: String,
    size: u64,
    plugin_ids: Vec<String>,
}

impl From<&PackageRow> for Installed {
    fn from(row: &PackageRow) -> Self {
        Self {
            id: row.id,
            name: row.name.clone(),
            version: row.package_version.clone(),
            size: row.size.unsigned_abs(),
            plugin_ids: row.classes.iter().map(|class| class.id.clone()).collect(),
        }
    }
}

fn answer_installed(written: Written, installed: Installed) -> Response {
    let Installed { id, name, version, size, plugin_ids } = installed;
    let message = format!(
        "{name} {version} ({} bytes) installed. Restart the controller to activate its plugins.",
        with_separators(size)
    );
    let location = format!("/api/v1/plugins/packages/{id}");
    let (status, public_id) = ("success", id.to_string());
    let out = PackageInstalledOut { status, message, public_id, package_name: name, version, plugin_ids };
    answer::created(written, &location, 1, &out)
}

fn taken(detail: String) -> Problem {
    Problem::conflict("package_installed", detail)
}

async fn receive(config: &Config, request: Request) -> Result<Received, Problem> {
    let length = content_length(request.headers());
    if length.is_some_and(|length| length > MAX_WHEEL_BYTES + OTHER_FIELDS) {
        return Err(too_large());
    }
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let boundary = multer::parse_boundary(kind.unwrap_or_default()).map_err(|_| missing())?;
    let limits = SizeLimit::new().whole_stream(MAX_WHEEL_BYTES + OTHER_FIELDS);
    let constraints = Constraints::new().size_limit(limits);
    let mut form = Multipart::with_constraints(request.into_body().into_data_stream(), boundary, constraints);
    while let Some(field) = form.next_field().await.map_err(|error| unreadable(&error))? {
        if field.name() == Some("file") {
            return receive_file(config, field).await;
        }
    }
    Err(missing())
}

async fn receive_file(config: &Config, mut field: Field<'static>) -> Result<Received, Problem> {
    let file_name = plain_name(field.file_name().unwrap_or_default());
    if !file_name.to_ascii_lowercase().ends_with(".whl") {
        return Err(Problem::malformed("file must be a .whl file"));
    }
    let file = tempfile::tempfile_in(&config.storage.folder).map_err(|error| Problem::file(&error))?;
    let mut file = tokio::fs::File::from_std(file);
    let (mut hasher, mut size) = (Sha256::new(), 0);
    while let Some(piece) = field.chunk().await.map_err(|error| unreadable(&error))? {
        size += piece.len() as u64;
        if size > MAX_WHEEL_BYTES {
            return Err(too_large());
        }
        hasher.update(&piece);
        file.write_all(&piece).await.map_err(|error| Problem::file(&error))?;
    }
    file.flush().await.map_err(|error| Problem::file(&error))?;
    let (file, sha256) = (file.into_std().await, Sha256Hex::from_bytes(&hasher.finalize()));
    Ok(Received { file, file_name, size, sha256 })
}

/// The name without folders, as it is shown; it is never used as a path.
fn plain_name(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String = name.chars().filter(|letter| !letter.is_control()).collect();
    if plain.len() > NAME_BYTES { String::new() } else { plain }
}

fn missing() -> Problem {
    Problem::field("file", "is required: send multipart/form-data with the wheel in a part named file")
}

fn too_large() -> Problem {
    Problem::too_large("file must not be larger than 50 MB")
}

fn unreadable(error: &multer::Error) -> Problem {
    match error {
        multer::Error::StreamSizeExceeded { .. } | multer::Error::FieldSizeExceeded { .. } => too_large(),
        _ => Problem::malformed("the multipart body cannot be read: it is not well-formed or was cut off"),
    }
}

/// Checks the wheel and unpacks it; gives it back with its name and version.
async fn unpack(plugins: &Plugins, received: Received) -> Result<(File, String, String), Problem> {
    let plugins = plugins.clone();
    let unpacking = tokio::task::spawn_blocking(move || {
        let Received { file, file_name, sha256, .. } = received;
        let wheel = Wheel::open(file.try_clone()?, &file_name)?;
        let (name, version) = (wheel.name.clone(), wheel.version.clone());
        plugins.unpack(wheel, &sha256)?;
        Ok((file, name, version))
    });
    unpacking.await.map_err(|error| Problem::internal(&error))?.map_err(|error: WheelError| match error {
        WheelError::Io(_) => packages::failed(DescribeError::Wheel(error)),
        _ => Problem::new(ProblemKind::Invalid, "invalid_wheel", error.to_string()).about("file"),
    })
}

async fn describe(plugins: &Plugins, sha256: &Sha256Hex) -> Result<Vec<PluginClass>, Problem> {
    let told = plugins.describe(Some(sha256), &Question::Classes {}).await.map_err(packages::failed)?;
    let unreadable = |_| {
        packages::failed(DescribeError::Plugin("it describes itself in a way that cannot be read".to_owned()))
    };
    let classes: Vec<PluginClass> = serde_json::from_value(told["classes"].clone()).map_err(unreadable)?;
    match classes.iter().find(|class| classes::is_built_in(&class.id)) {
        Some(class) => Err(Problem::conflict(
            "plugin_built_in",
            format!(
                "the plugin {} comes with the service: give the plugin of the package another id",
                class.id
            ),
        )),
        None => Ok(classes),
    }
}

/// Keeps the wheel, so that any gateway and any controller can have it.
async fn keep(wheels: &Wheels, id: Uuid, mut file: File, size: u64) -> Result<(), Problem> {
    file.seek(SeekFrom::Start(0)).map_err(|error| Problem::file(&error))?;
    let bytes = ReaderStream::new(tokio::fs::File::from_std(file));
    let receive =
        Receive { start: Start::Anew, limit: MAX_WHEEL_BYTES, expected_sha256: None, total: Some(size) };
    wheels.receive(&packages::key(id), receive, bytes, |_| ()).await.map_err(packages::blob_failed)?;
    Ok(())
}

/// `1234567` as `1,234,567`.
pub(super) fn with_separators(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_folders_and_numbers_get_separators() {
        assert_eq!(plain_name("../../etc/a.whl"), "a.whl");
        assert_eq!(plain_name("..\\a\n.whl"), "a.whl");
        assert_eq!(
            (with_separators(7), with_separators(1_234_567)),
            ("7".to_owned(), "1,234,567".to_owned())
        );
    }
}
