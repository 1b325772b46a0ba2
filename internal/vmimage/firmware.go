package vmimage

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/sandbox"
)

// UEFI is the firmware of disks that have nothing for BIOS to start.
const UEFI = "uefi"

// bootSectors are what a disk's firmware is told from: its MBR, and a GPT with the usual 128 partitions.
const bootSectors = 34 * 512

// Types of partitions of a GPT, as they lie on the disk:
// https://uefi.org/specs/UEFI/2.10/05_GUID_Partition_Table_Format.html
var (
	gptESP  = []byte("\x28\x73\x2a\xc1\x1f\xf8\xd2\x11\xba\x4b\x00\xa0\xc9\x3e\xc9\x3b")
	gptBIOS = []byte("Hah!IdontNeedEFI")
)

// mbrESP is the type of an EFI system partition in an MBR.
const mbrESP = 0xef

// firmwareOf returns, from the first sectors of a disk, which firmware it needs: UEFI, if it has an EFI system
// partition and neither a boot loader in its first sector nor a partition for one; "" stands for BIOS, which most disks
// can do.
func firmwareOf(disk []byte) string {
	if len(disk) < 512 || disk[510] != 0x55 || disk[511] != 0xaa {
		return ""
	}
	const code = 440 // bytes of a boot loader in an MBR
	if len(bytes.Trim(disk[:code], "\x00")) > 0 {
		return ""
	}
	for entry := range 4 {
		if disk[446+16*entry+4] == mbrESP {
			return UEFI
		}
	}
	const head, most = 512, 128
	if len(disk) < head+512 || string(disk[head:head+8]) != "EFI PART" {
		return ""
	}
	le := binary.LittleEndian
	at, count, size := le.Uint64(disk[head+72:]), le.Uint32(disk[head+80:]), le.Uint32(disk[head+84:])
	found := ""
	for n := range uint64(min(count, most)) {
		begin := at*512 + n*uint64(size)
		if at > bootSectors || size < 128 || size > 4096 || begin+16 > uint64(len(disk)) {
			break
		}
		switch kind := disk[begin : begin+16]; {
		case bytes.Equal(kind, gptBIOS):
			return ""
		case bytes.Equal(kind, gptESP):
			found = UEFI
		}
	}
	return found
}

// firmware reads the first sectors of a disk as a guest sees them, and tells which firmware it needs.
func firmware(ctx context.Context, f *os.File, h header) (string, error) {
	n := min(h.virtual, bootSectors) / 512 * 512
	if n == 0 {
		return "", nil
	}
	// Offsets are hexadecimal, and the bytes of a line are followed by their text.
	out, err := command{path: "/usr/bin/qemu-io", start: reader(f), timeout: time.Minute, hint: "install qemu-utils",
		args: []string{"-r", "-f", h.format, "-c", fmt.Sprintf("read -v 0 %d", n), sandbox.InputPath(f)}}.run(ctx)
	if err != nil {
		return "", err
	}
	return firmwareOf(parseDump(string(out), n)), nil
}

// parseDump reads the hexadecimal lines of qemu-io.
func parseDump(text string, most farm.Bytes) []byte {
	var disk []byte
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(line, ":  ")
		const width = 16 * 3
		if !ok || len(rest) < width {
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(rest[:width], " ", ""))
		if err != nil || len(disk) >= int(most) {
			continue
		}
		disk = append(disk, b...)
	}
	return disk
}
