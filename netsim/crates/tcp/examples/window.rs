//! A sender and its receiver without a network: a fixed window over a round trip of 20 us.

use flow_tcp::{Ack, CongestionControl, Receiver, Sender, Settings};

fn main() {
    let settings = Settings {
        control: CongestionControl::Fixed,
        initial_window: 2,
        ..Settings::default()
    };
    let (mut sender, mut receiver) = (Sender::new(3, &settings), Receiver::default());
    let mut now_ns = 0;
    while receiver.missing() < 3 {
        // What the window lets go; each is answered a round trip later.
        let sent: Vec<_> = std::iter::from_fn(|| sender.poll()).collect();
        assert!(sent.len() <= 2);
        now_ns += 20_000;
        for segment in sent {
            receiver.on_segment(segment.number, segment.is_retransmission);
            let ack = Ack {
                missing: receiver.missing(),
                trigger: segment.number,
                is_duplicate: false,
                marked: false,
                now_ns,
                round_trip_ns: 20_000,
            };
            sender.on_ack(ack, None);
        }
    }
    println!("{} segments in {} us", receiver.missing(), now_ns / 1_000);
}
