//! An S3 server: SeaweedFS, a program of its own, which tools/bootstrap puts into .tools.

use std::{
    collections::BTreeSet,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, aws::AmazonS3Builder, path::Path as ObjectPath};
use rustix::process::{Pid, Signal, kill_process};
use signalbox_config::{Secret, Storage};
use tokio::{
    net::TcpStream,
    sync::{Mutex, OnceCell},
    time::timeout,
};

use crate::{eventually, free_address, home, seconds};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/bin/weed");
const BUCKET: &str = "signalbox";
/// How often it is started at most, and how long it may take before other ports are tried.
const STARTS: usize = 3;
const START_TIMEOUT: Duration = Duration::from_secs(30);
const ACCESS_KEY_ID: &str = "signalbox-tests";
const SECRET_ACCESS_KEY: &str = "a-key-for-tests-only";

/// Runs the program that its arguments name, and prints its process id on the first line. When its own input ends,
/// because the server was dropped or this process has ended, it kills the program and removes the sockets left in
/// /tmp.
const KEEPER: &str = r#"
ports=$1; shift
"$@" </dev/null >"$LOG" 2>&1 &
pid=$!
echo $pid
read -r _
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
for port in $ports; do rm -f /tmp/seaweedfs-*-"$port".sock; done
"#;

/// Never dropped: the keeper ends the server with this process.
static SHARED: OnceCell<S3Server> = OnceCell::const_new();

/// A running S3 server with one bucket, which a test may kill and start again.
#[derive(Debug)]
pub struct S3Server {
    folder: PathBuf,
    ports: Ports,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    /// The shell around the server.
    keeper: Child,
    server: Pid,
}

/// Of the parts that the server consists of, for HTTP and for gRPC.
#[derive(Debug, Clone, Copy)]
struct Ports {
    master: [u16; 2],
    volume: [u16; 2],
    filer: [u16; 2],
    s3: [u16; 2],
}

impl S3Server {
    /// A server of one test.
    ///
    /// It does not say that a port was taken while it started, and then never answers: so it is given others.
    pub async fn start() -> Self {
        for _ in 1..STARTS {
            let server = Self::on_free_ports();
            if timeout(START_TIMEOUT, server.restart()).await.is_ok() {
                return server;
            }
            server.kill().await;
        }
        let server = Self::on_free_ports();
        server.restart().await;
        server
    }

    fn on_free_ports() -> Self {
        let folder = home::folder("s3");
        std::fs::create_dir_all(&folder).expect("make the folder of the S3 server");
        std::fs::write(folder.join("s3.json"), accounts()).expect("write the accounts of the S3 server");
        Self { folder, ports: Ports::free(), running: Mutex::new(None) }
    }

    /// The one that all tests of this process share; started by the first that wants it.
    pub async fn shared() -> &'static Self {
        SHARED.get_or_init(Self::start).await
    }

    /// Its address.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.s3[0])
    }

    /// Lets `storage` keep its files under a prefix of the bucket, such as one that [`Self::unique_prefix`] gives.
    pub fn configure(&self, storage: &mut Storage, prefix: &str) {
        storage.url = format!("s3://{BUCKET}/{prefix}");
        storage.endpoint = self.endpoint();
        storage.region = "us-east-1".to_owned();
        storage.path_style = true;
        storage.access_key_id = ACCESS_KEY_ID.to_owned();
        storage.secret_access_key = Secret::new(SECRET_ACCESS_KEY.to_owned());
    }

    /// A prefix that no other test of this process has.
    pub fn unique_prefix() -> String {
        home::unique("prefix")
    }

    /// A plain client of the bucket, for what the service does not show.
    pub fn client(&self) -> object_store::aws::AmazonS3 {
        let builder = AmazonS3Builder::new()
            .with_bucket_name(BUCKET)
            .with_endpoint(self.endpoint())
            .with_region("us-east-1")
            .with_allow_http(true)
            .with_access_key_id(ACCESS_KEY_ID)
            .with_secret_access_key(SECRET_ACCESS_KEY);
        builder.build().expect("a client of the S3 server")
    }

    /// Names of the files of which a blob store, `name`, that `storage` lets keep its files here, has any bytes: the folders,
    /// two levels below its own, that hold more than a record.
    pub async fn files(&self, storage: &Storage, name: &str) -> Vec<String> {
        let prefix = storage.url.rsplit('/').next().unwrap_or_default();
        let folder = ObjectPath::from(prefix).join(name);
        let (client, mut found) = (self.client(), BTreeSet::new());
        let mut objects = client.list(Some(&folder));
        while let Some(object) = objects.try_next().await.expect("list what is in the bucket") {
            let parts: Vec<_> = object.location.prefix_match(&folder).into_iter().flatten().collect();
            if let [transfer, file, part] = parts.as_slice()
                && part.as_ref() != "record"
            {
                found.insert((transfer.as_ref().to_owned(), file.as_ref().to_owned()));
            }
        }
        found.into_iter().map(|(_, file)| file).collect()
    }

    /// Kills it with SIGKILL; it stays away until [`S3Server::restart`].
    pub async fn kill(&self) {
        let Some(running) = self.running.lock().await.take() else { return };
        kill_process(running.server, Signal::KILL).expect("kill the S3 server");
        // Its keeper sees it go.
        drop(running);
    }

    /// Starts it on the same ports with what it has stored, and waits until it takes writes.
    pub async fn restart(&self) {
        let mut running = self.running.lock().await;
        assert!(running.is_none(), "the S3 server runs already");
        *running = Some(Running::start(&self.folder, self.ports));
        let port = self.ports.s3[0];
        eventually(seconds(60), async || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok()).await;
        // Its parts find each other some time after they have begun to listen. The first write makes the bucket.
        let client = self.client();
        let path = object_store::path::Path::from("started");
        eventually(seconds(60), async || client.put(&path, "bytes".into()).await.is_ok()).await;
    }
}

impl Running {
    fn start(folder: &Path, ports: Ports) -> Self {
        assert!(Path::new(PROGRAM).exists(), "{PROGRAM} is missing: run tools/bootstrap tests");
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "sh", &ports.list(), PROGRAM])
            .args(arguments(folder, ports))
            .env("LOG", folder.join("log"))
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the S3 server");
        let output = std::io::BufReader::new(keeper.stdout.take().expect("its output is a pipe"));
        let line =
            std::io::BufRead::lines(output).next().expect("it prints its process id").expect("in text");
        let server = line.trim().parse().ok().and_then(Pid::from_raw).expect("a process id");
        Self { keeper, server }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

impl Ports {
    fn free() -> Self {
        let pair = || [free_address().port(), free_address().port()];
        Self { master: pair(), volume: pair(), filer: pair(), s3: pair() }
    }

    fn list(self) -> String {
        let all = [self.master, self.volume, self.filer, self.s3].concat();
        all.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")
    }
}

fn arguments(folder: &Path, ports: Ports) -> Vec<String> {
    let [master, volume, filer, s3] = [ports.master, ports.volume, ports.filer, ports.s3];
    let folder = folder.display();
    let mut arguments: Vec<String> =
        ["-logtostderr=true", "server", "-filer", "-s3"].map(str::to_owned).into();
    arguments.extend([
        format!("-dir={folder}"),
        "-ip=127.0.0.1".to_owned(),
        "-ip.bind=127.0.0.1".to_owned(),
        format!("-master.port={}", master[0]),
        format!("-master.port.grpc={}", master[1]),
        "-master.volumeSizeLimitMB=1024".to_owned(),
        // Usage statistics for the server's makers.
        "-master.telemetry=false".to_owned(),
        format!("-volume.port={}", volume[0]),
        format!("-volume.port.grpc={}", volume[1]),
        "-volume.max=0".to_owned(),
        format!("-filer.port={}", filer[0]),
        format!("-filer.port.grpc={}", filer[1]),
        format!("-s3.port={}", s3[0]),
        format!("-s3.port.grpc={}", s3[1]),
        format!("-s3.config={folder}/s3.json"),
        "-s3.port.iceberg=0".to_owned(),
        "-s3.port.lance=0".to_owned(),
    ]);
    arguments
}

fn accounts() -> String {
    format!(
        r#"{{"identities": [{{"name": "tests", "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        "credentials": [{{"accessKey": "{ACCESS_KEY_ID}", "secretKey": "{SECRET_ACCESS_KEY}"}}]}}]}}"#
    )
}
