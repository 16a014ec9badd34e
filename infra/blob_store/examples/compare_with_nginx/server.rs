use std::{env, net::SocketAddr, path::PathBuf};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderValue, Response, StatusCode, header::CONTENT_LENGTH},
    routing::put,
};
use hyper_util::{rt::TokioIo, server::conn, service::TowerToHyperService};
use signalbox_blob_store::{BlobKey, BlobStore, Receive, Start};
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::Result;

type App = (BlobStore, BlobKey);

#[tokio::main]
pub async fn serve(address: SocketAddr, root: PathBuf) -> Result<()> {
    let app = (BlobStore::open(root)?, BlobKey::new(Uuid::nil(), "file"));
    let routes = Router::new().route("/file", put(upload).get(download).delete(delete)).with_state(app);
    let listener = TcpListener::bind(address).await?;
    let Ok(buffer) = env::var("MAX_BUF_SIZE") else {
        axum::serve(listener, routes).await?;
        return Ok(());
    };
    let mut builder = conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new()).http1_only();
    builder.http1().max_buf_size(buffer.parse()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (builder, service) = (builder.clone(), TowerToHyperService::new(routes.clone()));
        tokio::spawn(
            async move { builder.serve_connection(TokioIo::new(stream), service).await.map_err(drop) },
        );
    }
}

async fn upload(State((store, key)): State<App>, headers: axum::http::HeaderMap, body: Body) -> StatusCode {
    let total = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let request = Receive { start: Start::Anew, limit: u64::MAX, expected_sha256: None, total };
    match store.receive(&key, request, body.into_data_stream(), |_| {}).await {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn download(State((store, key)): State<App>) -> Response<Body> {
    match store.read(&key, None).await {
        Ok((size, bytes)) => {
            let mut response = Response::new(Body::from_stream(bytes));
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(size));
            response
        }
        Err(_) => Response::new(Body::empty()),
    }
}

async fn delete(State((store, _)): State<App>) -> StatusCode {
    match store.delete_transfer(Uuid::nil()).await {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
