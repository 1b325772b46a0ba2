package guest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"unicode"
)

// FuzzHostilePeer opens a session as a guest does, and then sends whatever frames it likes: the host's end keeps no
// more of each stream than it does for an honest guest, and ends with its channel.
func FuzzHostilePeer(f *testing.F) {
	op := func(kind frameType, stream byte, offset uint64, payload string) []byte {
		b := binary.LittleEndian.AppendUint64([]byte{byte(kind), stream}, offset)
		return append(append(b, byte(len(payload))), payload...)
	}
	f.Add(op(frameData, 1, 0, "hello"), []byte{1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add(bytes.Join([][]byte{op(frameData, 1, 0, "a"), op(frameData, 1, 1<<63, "b"),
		op(frameData, 1, ^uint64(0), "overflow"), op(frameAck, 0, 3, ""), op(frameAck, 0, ^uint64(0), ""),
		op(frameFin, 1, 1, ""), op(frameData, 1, 1, "after the end"), op(frameSyncAck, 0, 0, ""),
		op(frameMarks, 9, 1, "x")}, nil), bytes.Repeat([]byte{0xff}, 20))
	f.Fuzz(func(t *testing.T, script, marks []byte) {
		host, guest := net.Pipe()
		s := NewSession("job")
		s.Stream(0).Write([]byte("to the guest"))
		s.Stream(1)
		ended := make(chan error, 1)
		go func() { ended <- s.AttachHost(host) }()
		go io.Copy(io.Discard, s.Stream(1)) // somebody reads one of them
		frames := newFrameReader(guest)
		sync, err := frames.next()
		if err != nil || sync.kind != frameSync {
			t.Fatal(sync.kind, err)
		}
		go io.Copy(io.Discard, guest)
		guest.Write(appendFrame(nil,
			frame{kind: frameSyncAck,
				payload: append(append([]byte{}, sync.payload...), marks[:min(len(marks), 1000)]...)}))
		for len(script) >= 11 {
			payload := script[11:]
			payload = payload[:min(len(payload), int(script[10]))]
			guest.Write(appendFrame(nil,
				frame{kind: frameType(script[0]), stream: script[1] % 4, offset: binary.LittleEndian.Uint64(script[2:]),
					payload: payload}))
			script = script[11+len(payload):]
		}
		guest.Close()
		<-ended
		s.mu.Lock()
		for id, st := range s.streams {
			if len(st.in) > 2*Window || uint64(len(st.in)) > st.received || len(st.out) > Window ||
				st.sent < st.acked || st.sent > st.acked+uint64(len(st.out)) {
				t.Errorf("stream %d: in %d of %d, out %d, acked %d, sent %d", id, len(st.in), st.received, len(st.out),
					st.acked, st.sent)
			}
		}
		s.mu.Unlock()
		s.Close()
	})
}

// FuzzStateLines reads what a guest says on its control port: lines that make no sense are skipped, and those that do
// hold words.
func FuzzStateLines(f *testing.F) {
	var b bytes.Buffer
	for _, s := range []State{{Phase: Ready},
		{Job: "j", Phase: Failed, Message: "a\x1b[2J\u202e\nb", Exit: &Exit{Code: 1}}} {
		if err := WriteLine(&b, s); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(b.Bytes())
	f.Add([]byte("{\"phase\":1}\n[]\nnull\n\n{\"phase\":\"ready\",\"boot\":-1}\n{\"message\":\"\xff\\ud800\"}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		err := Lines(bytes.NewReader(text), 4096, func(s State) {
			for _, word := range []string{s.Job, string(s.Phase), s.Message} {
				if len(word) > maxMessage ||
					strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }) {
					t.Errorf("%q", word)
				}
			}
			again, err := json.Marshal(s)
			var same State
			if err != nil || json.Unmarshal(again, &same) != nil || same.Message != s.Message {
				t.Errorf("%s is read as %+v, %v", again, same, err)
			}
		})
		if err == nil {
			t.Error("no end")
		}
	})
}
