package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// A frame is a 20-byte head, a payload and a 4-byte tail:
//
//	magic[4] type[1] stream[1] zero[2] length[4] offset[8] | payload[length] | crc32(head)[4]
//
// The tail repeats the head's checksum: a payload that was cut off and filled up with bytes of a later connection shows
// by its tail. The channel loses bytes only where a connection ends, so the payload itself needs no checksum.
const (
	headSize   = 20
	tailSize   = 4
	maxPayload = 64 << 10
)

var frameMagic = []byte("gR\xa5\x1e")

type frameType byte

const (
	frameData    frameType = iota + 1 // payload at offset
	frameFin                          // the stream ends at offset
	frameAck                          // the reader has taken everything before offset
	frameSync                         // host → guest: start anew; payload is a nonce and the session's name
	frameSyncAck                      // guest → host: these two, then the guest's marks
	frameMarks                        // host → guest: the host's marks
	frameOpen                         // guest → host, of a relay: a connection to the port that the payload names
	frameReset                        // of a relay: a connection is over, and what is under way of it is dropped
	frameTypes
)

type frame struct {
	kind    frameType
	stream  byte
	offset  uint64
	payload []byte
}

// appendFrame appends the encoded frame to buf.
func appendFrame(buf []byte, f frame) []byte {
	start := len(buf)
	buf = append(buf, frameMagic...)
	buf = append(buf, byte(f.kind), f.stream, 0, 0)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(len(f.payload)))
	buf = binary.LittleEndian.AppendUint64(buf, f.offset)
	sum := crc32.ChecksumIEEE(buf[start:])
	buf = append(buf, f.payload...)
	return binary.LittleEndian.AppendUint32(buf, sum)
}

// parseFrame reads one frame at the start of buf. It returns the bytes used; 0 means more are needed, -1 that none
// starts here.
func parseFrame(buf []byte) (frame, int) {
	if n := min(len(buf), len(frameMagic)); !bytes.Equal(buf[:n], frameMagic[:n]) {
		return frame{}, -1
	}
	if len(buf) < headSize {
		return frame{}, 0
	}
	f := frame{kind: frameType(buf[4]), stream: buf[5], offset: binary.LittleEndian.Uint64(buf[12:])}
	length := int(binary.LittleEndian.Uint32(buf[8:]))
	if f.kind == 0 || f.kind >= frameTypes || buf[6]|buf[7] != 0 || length > maxPayload {
		return frame{}, -1
	}
	total := headSize + length + tailSize
	if len(buf) < total {
		return frame{}, 0
	}
	if binary.LittleEndian.Uint32(buf[total-tailSize:]) != crc32.ChecksumIEEE(buf[:headSize]) {
		return frame{}, -1
	}
	f.payload = buf[headSize : headSize+length]
	return f, total
}

// frameReader finds frames in a byte channel that may hold cut-off ones.
type frameReader struct {
	from io.Reader
	buf  []byte
	pos  int
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{from: r, buf: make([]byte, 0, 4*maxPayload)}
}

// next returns the next whole frame, skipping whatever is none. The payload is good until the next call.
func (r *frameReader) next() (frame, error) {
	for {
		f, n := parseFrame(r.buf[r.pos:])
		switch {
		case n > 0:
			r.pos += n
			return f, nil
		case n < 0:
			r.skip()
		default:
			if err := r.fill(); err != nil {
				return frame{}, err
			}
		}
	}
}

// skip goes to where the next frame may start.
func (r *frameReader) skip() {
	rest := r.buf[r.pos+1:]
	if i := bytes.IndexByte(rest, frameMagic[0]); i >= 0 {
		r.pos += 1 + i
		return
	}
	r.pos = len(r.buf)
}

func (r *frameReader) fill() error {
	if r.pos > 0 && cap(r.buf)-len(r.buf) < headSize+maxPayload+tailSize {
		r.buf = r.buf[:copy(r.buf, r.buf[r.pos:])]
		r.pos = 0
	}
	n, err := r.from.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = errors.New("the channel gave nothing")
	}
	return err
}
