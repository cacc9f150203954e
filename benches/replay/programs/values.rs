use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn main() {
    let start = Instant::now();
    println!("{:?}", SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
    let map: HashMap<&str, u32> = [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)].into();
    println!("{map:?} {:p}", &map);
    let threads: Vec<_> = (0..4)
        .map(|number| {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20 * number));
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
            })
        })
        .collect();
    for thread in threads {
        println!("{:?}", thread.join().unwrap());
    }
    println!("{:?} {}", start.elapsed(), std::process::id());
    std::fs::write("out/values.txt", format!("{map:?}")).unwrap();
}
