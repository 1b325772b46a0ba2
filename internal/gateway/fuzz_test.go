package gateway

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Opcodes of FUSE that the test names; see <linux/fuse.h>.
const (
	opLookup, opGetattr, opSetattr, opReadlink, opSymlink, opMknod, opMkdir = 1, 3, 4, 5, 6, 8, 9
	opUnlink, opRename, opLink, opOpen, opRead, opWrite                     = 10, 12, 13, 14, 15, 16
	opSetxattr, opGetxattr, opInit, opOpendir, opReaddir, opSetlkw          = 21, 22, 26, 27, 28, 33
	opCreate                                                                = 35
)

// packed is a request as the fuzzer has it: opcode, node, the length of the body in two bytes, and the body.
func packed(op, node byte, body ...[]byte) []byte {
	b := bytes.Join(body, nil)
	return append(binary.LittleEndian.AppendUint16([]byte{op, node}, uint16(len(b))), b...)
}

// unpack makes the next request as it comes from a stream, and returns what follows; nil at the end.
func unpack(script []byte, unique uint64) (request, rest []byte) {
	if len(script) < 4 {
		return nil, nil
	}
	body := script[4:]
	body = body[:min(len(body), int(binary.LittleEndian.Uint16(script[2:])))]
	request = make([]byte, headSize, headSize+len(body))
	binary.LittleEndian.PutUint32(request, uint32(headSize+len(body)))
	binary.LittleEndian.PutUint32(request[4:], uint32(script[0]))
	binary.LittleEndian.PutUint64(request[8:], unique)
	binary.LittleEndian.PutUint64(request[16:], uint64(script[1]))
	return append(request, body...), script[4+len(body):]
}

func words(w ...uint32) (b []byte) {
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func zeros(n int) []byte { return make([]byte, n) }

// writes opens the file of the bind, writes to it and reads it.
func writes() []byte {
	return bytes.Join([][]byte{packed(opInit, 0, words(7, 36, 1<<20, ^uint32(0)), zeros(48)),
		packed(opLookup, 1, []byte("f\x00")), packed(opGetattr, 2, zeros(16)), packed(opOpen, 2, words(2, 0)),
		packed(opWrite, 2, words(1, 0, 0, 0, 4, 0), zeros(16), []byte("text")),
		packed(opRead, 2, words(1, 0, 0, 0, 100, 0), zeros(16))}, nil)
}

// TestRequestsAreUnderstood: what the fuzzer starts from does to files what it should.
func TestRequestsAreUnderstood(t *testing.T) {
	top := t.TempDir()
	if said := fuzzed(t, top, writes()); !bytes.Contains(said, []byte("textt's")) {
		t.Errorf("%q", said)
	}
	if text, err := os.ReadFile(filepath.Join(top, "bind", "f")); err != nil || string(text) != "textt's" {
		t.Errorf("%q, %v", text, err)
	}
}

// FuzzRequests sends a read-write bind whatever bytes a guest may. What is beside the bind stays as it is, and unread.
func FuzzRequests(f *testing.F) {
	init, name := words(7, 36, 1<<20, ^uint32(0)), []byte("f\x00")
	f.Add(append(writes(), packed(opSetattr, 2, words(1|8|1<<6), zeros(84))...))
	f.Add(bytes.Join([][]byte{packed(opInit, 0, init), packed(opOpendir, 1, zeros(8)),
		packed(opReaddir, 1, words(1, 0, 0, 0, 4096, 0), zeros(16)), packed(opSymlink, 1, []byte("l\x00../secret\x00")),
		packed(opLookup, 1, []byte("l\x00")), packed(opReadlink, 2), packed(opOpen, 2, zeros(8)),
		packed(opLookup, 1, []byte("../secret\x00")), packed(opGetxattr, 2, words(100, 0), []byte("user.x\x00"))}, nil))
	f.Add(bytes.Join([][]byte{packed(opCreate, 1, words(2, 0o104755, 0, 0), []byte("new\x00")),
		packed(opMknod, 1, words(0o20666, 0x103, 0, 0), []byte("dev\x00")),
		packed(opMkdir, 1, words(0o755, 0), []byte("d\x00")), packed(opRename, 1, words(2, 0), []byte("f\x00g\x00")),
		packed(opLink, 1, words(2, 0), []byte("h\x00")), packed(opUnlink, 1, name),
		packed(opSetxattr, 2, words(1, 0), []byte("user.x\x00v"))}, nil))
	signal.Ignore(syscall.SIGXFSZ) // see smallFiles
	top := f.TempDir()
	f.Fuzz(func(t *testing.T, script []byte) { fuzzed(t, top, script) })
}

// fuzzed answers the requests of a script, and returns all answers.
func fuzzed(t *testing.T, top string, script []byte) []byte {
	const secret = "what no guest reads"
	dir, beside := filepath.Join(top, "bind"), filepath.Join(top, "secret")
	os.RemoveAll(dir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{beside: secret, filepath.Join(dir, "f"): "guest's"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	defer smallFiles(t)()
	var said bytes.Buffer
	s := newServer(&said, fileSystem(&bound{d, Options{}}))
	x := newExchange()
	for unique := uint64(1); unique < 100; unique++ {
		request, rest := unpack(script, unique)
		if request == nil {
			break
		}
		script = rest
		if request[4] == opSetlkw { // waits, as it should
			continue
		}
		if x.receive(bytes.NewReader(request)) == nil {
			s.reply(x)
		}
	}
	if bytes.Contains(said.Bytes(), []byte(secret)) {
		t.Error("a guest reads what is not bound")
	}
	if text, err := os.ReadFile(beside); err != nil || string(text) != secret {
		t.Errorf("a guest changed what is not bound: %q, %v", text, err)
	}
	if info, err := os.Lstat(beside); err != nil || info.Mode() != 0o644 {
		t.Error(info.Mode(), err)
	}
	return said.Bytes()
}

// smallFiles has a request to make a file of a terabyte fail, until what it returns is called.
func smallFiles(t *testing.T) func() {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 64 << 20, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	return func() { unix.Setrlimit(unix.RLIMIT_FSIZE, &before) }
}
