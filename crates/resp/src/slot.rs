/// The number of parts that a Redis cluster cuts its keys into.
pub const SLOTS: u16 = 16384;

/// The part a key belongs to: CRC16 (XMODEM) of its hash tag, or of all of it.
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// What each first byte adds.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| crc << 8 ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"x{foo}y"), 12182);
        assert_eq!(slot(b"{}foo"), crc16(b"{}foo") % SLOTS);
        // The keys that SmartRedis makes for the first slots of three nodes.
        assert_eq!((slot(b"{\x00\x00}.m"), slot(b"{\x38\x4d}.m"), slot(b"{\x70\x9a}.m")), (0, 5461, 10922));
    }
}
