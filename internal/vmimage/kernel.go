package vmimage

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxKernel bounds an uncompressed kernel: Debian's cloud kernel has 53 MB.
const maxKernel = 256 << 20

// extractKernel returns the uncompressed ELF kernel of a bzImage when QEMU can start it by PVH. Started so, a guest
// under emulation is up 0.3 s of 1.9 s earlier, because it need not unpack itself. The layout is in the kernel's
// Documentation/arch/x86/boot.rst: payload_offset and payload_length count from the protected-mode code.
func extractKernel(image []byte) ([]byte, error) {
	if len(image) < 0x268 || string(image[0x202:0x206]) != "HdrS" || binary.LittleEndian.Uint16(image[0x206:]) < 0x208 {
		return nil, errors.New("no bzImage of boot protocol 2.08 or later")
	}
	sectors := int64(image[0x1f1])
	if sectors == 0 {
		sectors = 4
	}
	start := (sectors+1)*512 + int64(binary.LittleEndian.Uint32(image[0x248:]))
	end := start + int64(binary.LittleEndian.Uint32(image[0x24c:]))
	if end > int64(len(image)) || end-start < 8 {
		return nil, errors.New("the payload is outside of the file")
	}
	payload := image[start : end-4]
	size := int64(binary.LittleEndian.Uint32(image[end-4:]))
	if size > maxKernel {
		return nil, fmt.Errorf("an uncompressed kernel of %d bytes", size)
	}
	kernel, err := decompress(payload, size)
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(kernel))
	if err != nil {
		return nil, fmt.Errorf("the payload: %w", err)
	}
	if f.Machine != elf.EM_X86_64 || f.Type != elf.ET_EXEC || !hasPVH(f) {
		return nil, errors.New("no x86-64 kernel with a PVH entry")
	}
	// Behind the ELF file comes a table for address randomization, which a kernel that is started directly cannot use.
	return kernel[:elfEnd(kernel, f)], nil
}

// decompress knows the formats that distributions use. Kernel builds append the size to formats that do not have it.
func decompress(payload []byte, size int64) ([]byte, error) {
	var r io.Reader
	var err error
	switch {
	case bytes.HasPrefix(payload, []byte{0x02, 0x21, 0x4c, 0x18}):
		return unlz4(payload[4:], size)
	case bytes.HasPrefix(payload, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		var d *zstd.Decoder
		if d, err = zstd.NewReader(bytes.NewReader(payload), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(maxKernel)); err == nil {
			defer d.Close()
			r = d
		}
	case bytes.HasPrefix(payload, []byte{0x1f, 0x8b}):
		r, err = gzip.NewReader(bytes.NewReader(payload))
	default:
		return nil, fmt.Errorf("a payload that begins with % x", payload[:4])
	}
	if err != nil {
		return nil, err
	}
	out := make([]byte, size)
	_, err = io.ReadFull(r, out)
	return out, err
}

// unlz4 reads LZ4's legacy format without its magic: blocks with their compressed length before them
// (doc/lz4_Frame_format.md and doc/lz4_Block_format.md of LZ4).
func unlz4(in []byte, size int64) ([]byte, error) {
	out := make([]byte, 0, size)
	for len(in) >= 4 {
		n := int64(binary.LittleEndian.Uint32(in))
		in = in[4:]
		if n > int64(len(in)) {
			return nil, errors.New("lz4: a block is cut short")
		}
		var err error
		if out, err = unlz4Block(out, in[:n], len(out)); err != nil {
			return nil, err
		}
		in = in[n:]
	}
	if int64(len(out)) != size {
		return nil, fmt.Errorf("lz4: %d bytes, want %d", len(out), size)
	}
	return out, nil
}

// unlz4Block appends one block to out, up to out's capacity. Matches do not reach before base, where the block begins.
func unlz4Block(out, in []byte, base int) ([]byte, error) {
	bad := errors.New("lz4: a damaged block")
	length := func(n int) (int, bool) { // 15 means that more bytes follow, up to one that is not 255
		for more := n == 15; more; {
			if len(in) == 0 {
				return 0, false
			}
			n, more = n+int(in[0]), in[0] == 255
			in = in[1:]
		}
		return n, true
	}
	for len(in) > 0 {
		token := in[0]
		in = in[1:]
		n, ok := length(int(token >> 4))
		if !ok || n > len(in) || n > cap(out)-len(out) {
			return nil, bad
		}
		out, in = append(out, in[:n]...), in[n:]
		if len(in) == 0 {
			break // the last sequence is literals only
		}
		if len(in) < 2 {
			return nil, bad
		}
		back := int(binary.LittleEndian.Uint16(in))
		in = in[2:]
		n, ok = length(int(token & 15))
		n += 4
		from := len(out) - back
		if !ok || back == 0 || from < base || n > cap(out)-len(out) {
			return nil, bad
		}
		for n > 0 { // a match may overlap what it makes
			c := min(n, len(out)-from)
			out = append(out, out[from:from+c]...)
			n -= c
		}
	}
	return out, nil
}

// hasPVH looks for XEN_ELFNOTE_PHYS32_ENTRY, by which QEMU starts an uncompressed kernel.
func hasPVH(f *elf.File) bool {
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > 1<<16 {
			continue
		}
		b := make([]byte, p.Filesz)
		if _, err := p.ReadAt(b, 0); err != nil {
			continue
		}
		for len(b) >= 12 {
			name, desc := int64(f.ByteOrder.Uint32(b)+3)&^3, int64(f.ByteOrder.Uint32(b[4:])+3)&^3
			if name+desc > int64(len(b))-12 {
				break
			}
			if f.ByteOrder.Uint32(b[8:]) == 18 && name == 4 && string(b[12:16]) == "Xen\x00" {
				return true
			}
			b = b[12+name+desc:]
		}
	}
	return false
}

// elfEnd is where the ELF file ends: behind its segments and its section headers.
func elfEnd(b []byte, f *elf.File) int64 {
	end := int64(binary.LittleEndian.Uint64(b[0x28:])) +
		int64(binary.LittleEndian.Uint16(b[0x3a:]))*int64(binary.LittleEndian.Uint16(b[0x3c:]))
	for _, p := range f.Progs {
		end = max(end, int64(p.Off+p.Filesz))
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS {
			end = max(end, int64(s.Offset+s.FileSize))
		}
	}
	if end <= 0 || end > int64(len(b)) {
		return int64(len(b))
	}
	return end
}
