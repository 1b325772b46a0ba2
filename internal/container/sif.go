package container

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// SIFMagic begins a SIF file, after its launch line.
const (
	SIFMagic   = "SIF_MAGIC\x00"
	SIFMagicAt = 32
)

// The layout of SIF, version 01: https://github.com/apptainer/sif, pkg/sif/sif.go and descriptor.go. All numbers are
// little-endian, and nothing is padded.
const (
	sifHeader     = 128
	sifDescriptor = 585
	// mostDescriptors is twenty times what Apptainer makes room for.
	mostDescriptors = 1024

	sifLabels    = 0x4003
	sifPartition = 0x4004

	sifSquashfs      = 1
	sifEncrypted     = 5
	sifPrimarySystem = 2

	mostLabels = 1 << 20
)

// sifArchitectures are the codes of architectures; we run "02".
var sifArchitectures = map[string]string{"01": "386", "02": "amd64", "03": "arm", "04": "arm64", "05": "ppc64",
	"06": "ppc64le", "09": "mips", "13": "s390x", "14": "riscv64"}

// SIF is what a SIF file says of its root file system, a squashfs.
type SIF struct {
	Offset, Size int64
	Config       Config
}

// ReadSIF reads the header and the descriptors of a SIF file of size bytes, and nothing behind what they say. Error:
// farm.CodeBadImage.
func ReadSIF(r io.ReaderAt, size int64) (SIF, error) {
	var head [sifHeader]byte
	if size < sifHeader {
		return SIF{}, badSIF("it is too short", nil)
	}
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return SIF{}, badSIF("its header cannot be read", err)
	}
	if !bytes.Equal(head[SIFMagicAt:SIFMagicAt+len(SIFMagic)], []byte(SIFMagic)) || string(head[42:45]) != "01\x00" {
		return SIF{}, badSIF("it has no SIF header of version 01", nil)
	}
	le := binary.LittleEndian
	// behind the UUID: times of creation and change, descriptors that are free and all, their offset and size
	total, at, length := le.Uint64(head[88:]), le.Uint64(head[96:]), le.Uint64(head[104:])
	if total > mostDescriptors || length != total*sifDescriptor || at < sifHeader || at > uint64(size) ||
		length > uint64(size)-at {
		return SIF{}, badSIF("its list of parts lies outside of the file, or is too long", nil)
	}
	list := make([]byte, length)
	if _, err := r.ReadAt(list, int64(at)); err != nil {
		return SIF{}, badSIF("its list of parts cannot be read", err)
	}
	found := SIF{Offset: -1}
	for ; len(list) > 0; list = list[sifDescriptor:] {
		if list[4] == 0 { // nothing is there
			continue
		}
		if err := found.part(r, list[:sifDescriptor], size); err != nil {
			return SIF{}, err
		}
	}
	if found.Offset < 0 {
		return SIF{}, badSIF("it has no system partition; of images that Apptainer and SingularityCE make, those in "+
			"OCI-SIF format are not read: give the reference of the registry", nil)
	}
	// What `apptainer run` starts.
	found.Config.Entrypoint = []string{"/.singularity.d/runscript"}
	return found, nil
}

// part takes what is wanted of one descriptor.
func (s *SIF) part(r io.ReaderAt, d []byte, size int64) error {
	le := binary.LittleEndian
	kind, at, length := le.Uint32(d), int64(le.Uint64(d[17:])), int64(le.Uint64(d[25:]))
	if kind != sifLabels && kind != sifPartition {
		return nil
	}
	if at < sifHeader || length < 0 || at > size || length > size-at {
		return badSIF("a part of it lies outside of the file", nil)
	}
	if kind == sifLabels {
		if length > mostLabels || s.Config.Labels != nil {
			return nil
		}
		text := make([]byte, length)
		if _, err := r.ReadAt(text, at); err != nil {
			return badSIF("its labels cannot be read", err)
		}
		json.Unmarshal(text, &s.Config.Labels) // labels that are none do no harm
		return nil
	}
	extra := d[sifDescriptor-384:]
	if le.Uint32(extra[4:]) != sifPrimarySystem {
		return nil
	}
	switch fs := le.Uint32(extra); fs {
	case sifSquashfs:
	case sifEncrypted:
		return badSIF("it is encrypted", nil)
	default:
		return badSIF(fmt.Sprintf("its file system is of kind %d, and only squashfs is read", fs), nil)
	}
	if code := string(bytes.TrimRight(extra[8:11], "\x00")); code != "02" {
		return badSIF(fmt.Sprintf("it is for %s, and this host runs amd64", nameOr(sifArchitectures[code], code)), nil)
	}
	var magic [4]byte
	if _, err := r.ReadAt(magic[:], at); err != nil || length < 96 || string(magic[:]) != "hsqs" {
		return badSIF("its system partition is not a squashfs", err)
	}
	if s.Offset >= 0 {
		return badSIF("it has two system partitions", nil)
	}
	s.Offset, s.Size = at, length
	return nil
}

func nameOr(known, code string) string {
	if known == "" {
		return fmt.Sprintf("architecture %q", code)
	}
	return known
}

func badSIF(what string, err error) error {
	return badImage("the SIF file cannot be used: "+what, "look at it with `apptainer sif list FILE`", err)
}
