use signalbox_config::Config;
use tokio::net::TcpListener;

use super::*;

fn connections(most: u32) -> Arc<Connections> {
    let mut settings = Config::load(None, &HashMap::new()).unwrap().server;
    settings.max_connections = most;
    settings.trusted_proxies = vec![IpAddr::from([10, 0, 0, 1])];
    Arc::new(Connections::new(&settings))
}

#[test]
fn one_address_has_at_most_half_of_all_places() {
    let connections = connections(400);
    assert_eq!((connections.per_address, connections.per_agent_address), (200, 200));
}

#[test]
fn refused_bodies_are_bounded_by_client_and_in_all() {
    let connections = connections(400);
    let [one, other, proxy] = [[192_u8, 0, 2, 1], [192, 0, 2, 2], [10, 0, 0, 1]].map(IpAddr::from);
    let begin = |client: IpAddr, count: usize| {
        (0..count).filter_map(|_| connections.begin_drain(client)).collect::<Vec<_>>()
    };
    let mut held = begin(one, 80);
    assert_eq!(held.len(), DRAINS_PER_NETWORK);
    assert_eq!(begin(other, 1).len(), 1);
    held.pop();
    held.extend(begin(one, 2));
    assert_eq!(held.len(), DRAINS_PER_NETWORK, "what has ended makes room for another");
    held.extend(begin(proxy, 400));
    assert_eq!(held.len(), 200, "a proxy stands for many clients");
    drop(held);
    let places = connections.places();
    assert_eq!((places.drains.all, places.drains.networks.len()), (0, 0));
}

#[tokio::test]
async fn a_connection_is_an_agents_for_one_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stream = Arc::new(TcpStream::connect(address).await.unwrap());
    let (connections, (leftovers, _received)) = (connections(400), mpsc::channel(1));
    let place = connections.admit(&stream, address, leftovers).unwrap();
    let connection = Connection(Arc::clone(&place.shared));
    for _ in 0..2 {
        connections.note_agent(&connection);
        assert!(connection.serves_agent());
        connection.begin_body();
        assert!(!connection.serves_agent());
    }
}
