package vmimage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestHostileHints: no hint has people run a program on a file that may be hostile, and the message says which files
// that one names.
func TestHostileHints(t *testing.T) {
	backed := make([]byte, 1<<16)
	copy(backed, "QFI\xfb")
	binary.BigEndian.PutUint32(backed[4:], 3)
	binary.BigEndian.PutUint64(backed[8:], 512)
	binary.BigEndian.PutUint32(backed[16:], uint32(len("/etc/shadow")))
	copy(backed[512:], "/etc/shadow")
	description := "# Disk DescriptorFile\nversion=1\nparentFileNameHint=\"/root/parent\"\n" +
		"createType=\"monolithicFlat\"\nRW 8 FLAT \"/etc/shadow\" 0\n"
	files := map[string][]byte{
		"qcow2 with a backing file": backed,
		"description":               []byte(description),
		"COWD":                      append([]byte("COWD"), description...),
	}
	for _, k := range knownMagic {
		text := make([]byte, 1<<17)
		copy(text[max(k.at, 0):], k.magic)
		files[k.what] = text
	}
	for name, text := range files {
		_, err := readHeader(bytes.NewReader(text), int64(len(text)))
		known := new(farm.Error)
		if !errors.As(err, &known) {
			if name != "a Virtual PC disk (VHD)" && name != "a macOS disk (DMG)" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		for _, program := range []string{"`", "qemu-img convert", "qemu-img check", "unlz4", "bunzip2"} {
			if strings.Contains(known.Hint, program) {
				t.Errorf("%s: the hint names a program: %s", name, known.Hint)
			}
		}
		if strings.Contains(string(text), "/etc/shadow") && !strings.Contains(known.Message, "/etc/shadow") {
			t.Errorf("%s: the message does not name the file: %s", name, known.Message)
		}
	}
}
