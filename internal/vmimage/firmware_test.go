package vmimage

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// gptDisk has partitions of these types.
func gptDisk(types ...[]byte) []byte {
	disk := make([]byte, bootSectors)
	disk[510], disk[511] = 0x55, 0xaa
	disk[446+4] = 0xee
	copy(disk[512:], "EFI PART")
	binary.LittleEndian.PutUint64(disk[512+72:], 2)
	binary.LittleEndian.PutUint32(disk[512+80:], 128)
	binary.LittleEndian.PutUint32(disk[512+84:], 128)
	for i, t := range types {
		copy(disk[1024+128*i:], t)
	}
	return disk
}

func TestFirmwareOf(t *testing.T) {
	other := []byte("0123456789abcdef")
	loader := gptDisk(gptESP)
	loader[0] = 0xeb
	mbr := make([]byte, 512)
	mbr[510], mbr[511], mbr[446+16+4] = 0x55, 0xaa, mbrESP
	huge := gptDisk(gptESP)
	binary.LittleEndian.PutUint64(huge[512+72:], 1<<63)
	for name, c := range map[string]struct {
		disk []byte
		want string
	}{
		"ESP":               {gptDisk(other, gptESP), UEFI},
		"ESP and BIOS boot": {gptDisk(gptESP, gptBIOS), ""},
		"ESP and a loader":  {loader, ""},
		"no ESP":            {gptDisk(other), ""},
		"ESP of an MBR":     {mbr, UEFI},
		"nothing":           {nil, ""},
		"noise":             {make([]byte, 512), ""},
		"a table outside":   {huge, ""},
		"cut short":         {gptDisk(gptESP)[:1030], ""},
	} {
		if got := firmwareOf(c.disk); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestFirmwareRead: what qemu-io prints of a qcow2 is what is on it.
func TestFirmwareRead(t *testing.T) {
	dir := t.TempDir()
	raw, qcow2 := filepath.Join(dir, "raw"), filepath.Join(dir, "qcow2")
	disk := append(gptDisk([]byte("0123456789abcdef"), gptESP), make([]byte, 1<<20)...)
	if err := os.WriteFile(raw, disk, 0o644); err != nil {
		t.Fatal(err)
	}
	convert := exec.Command("qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", raw, qcow2)
	if out, err := convert.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	os.Chmod(dir, 0o755)
	for path, format := range map[string]string{raw: "raw", qcow2: "qcow2"} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got, err := firmware(t.Context(), f, header{format, farm.MiB}); got != UEFI || err != nil {
			t.Errorf("%s: %q, %v", format, got, err)
		}
	}
	dump := "00000000:  " + strings.Repeat("61 ", 16) + " aaaa\nread 16/16 bytes\n"
	if got := parseDump(dump, 16); string(got) != strings.Repeat("a", 16) {
		t.Errorf("%q", got)
	}
}
