package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// sector is what Linux counts disks in, and what virtio disks have.
const sector = 512

// alignTo is where partitions end, as sfdisk and growpart have them: at whole megabytes.
const alignTo = 1 << 20 / sector

// table is what a partition table lies on.
type table interface {
	io.ReaderAt
	io.WriterAt
}

// growPartition writes into the table of a disk that the partition which begins at start goes on to the end of the
// disk, and returns its new size; all in sectors. Where it does so already, or another one lies behind it, nothing is
// written and the size is 0.
func growPartition(disk table, sectors, start uint64) (size uint64, err error) {
	mbr := make([]byte, sector)
	if _, err := disk.ReadAt(mbr, 0); err != nil {
		return 0, err
	}
	if mbr[510] != 0x55 || mbr[511] != 0xaa {
		return 0, errors.New("the disk has no partition table")
	}
	const protective = 0xee
	if mbr[mbrEntries+4] == protective {
		return growGPT(disk, mbr, sectors, start)
	}
	return growMBR(disk, mbr, sectors, start)
}

// Of a master boot record: where its four entries begin, and how long one is.
const mbrEntries, mbrEntry = 446, 16

func growMBR(disk table, mbr []byte, sectors, start uint64) (uint64, error) {
	end := min(sectors, math.MaxUint32) / alignTo * alignTo
	var entry []byte
	for at := mbrEntries; at < 510; at += mbrEntry {
		e := mbr[at : at+mbrEntry]
		first, size := uint64(binary.LittleEndian.Uint32(e[8:])), uint64(binary.LittleEndian.Uint32(e[12:]))
		switch {
		case e[4] == 0 || size == 0:
		case first == start:
			entry = e
		case first+size > start:
			return 0, nil // behind it, or around it: a logical partition
		}
	}
	if entry == nil {
		return 0, fmt.Errorf("no partition begins at sector %d", start)
	}
	if start+uint64(binary.LittleEndian.Uint32(entry[12:])) >= end {
		return 0, nil
	}
	binary.LittleEndian.PutUint32(entry[12:], uint32(end-start))
	copy(entry[5:8], []byte{0xfe, 0xff, 0xff}) // its end in cylinders, which nobody can say any more
	_, err := disk.WriteAt(mbr, 0)
	return end - start, err
}

// gpt is the header of a GUID partition table, as it lies on the disk.
type gpt []byte

func (h gpt) u64(at int) uint64       { return binary.LittleEndian.Uint64(h[at:]) }
func (h gpt) u32(at int) uint32       { return binary.LittleEndian.Uint32(h[at:]) }
func (h gpt) set64(at int, v uint64)  { binary.LittleEndian.PutUint64(h[at:], v) }
func (h gpt) set32(at int, v uint32)  { binary.LittleEndian.PutUint32(h[at:], v) }
func (h gpt) sum() (is, want uint32)  { return h.u32(gptCRC), headerSum(h) }
func (h gpt) entriesSize() (n uint64) { return uint64(h.u32(gptCount)) * uint64(h.u32(gptEntrySize)) }

// Where the fields of a GPT header lie.
const (
	gptSize, gptCRC, gptSelf, gptOther, gptLast   = 12, 16, 24, 32, 48
	gptEntries, gptCount, gptEntrySize, gptCRCAll = 72, 80, 84, 88
)

func headerSum(h gpt) uint32 {
	c := append([]byte{}, h[:h.u32(gptSize)]...)
	copy(c[gptCRC:], []byte{0, 0, 0, 0})
	return crc32.ChecksumIEEE(c)
}

func growGPT(disk table, mbr []byte, sectors, start uint64) (uint64, error) {
	h := make(gpt, sector)
	if _, err := disk.ReadAt(h, sector); err != nil {
		return 0, err
	}
	if string(h[:8]) != "EFI PART" || h.u32(gptSize) < 92 || h.u32(gptSize) > sector {
		return 0, errors.New("the disk has no GUID partition table behind its protective one")
	}
	const most = 1 << 20 // of entries; tables have 16 KiB
	if is, want := h.sum(); is != want || h.entriesSize() > most || h.u32(gptEntrySize) < 128 {
		return 0, errors.New("the GUID partition table is damaged")
	}
	entries := make([]byte, h.entriesSize())
	if _, err := disk.ReadAt(entries, int64(h.u64(gptEntries))*sector); err != nil {
		return 0, err
	}
	if crc32.ChecksumIEEE(entries) != h.u32(gptCRCAll) {
		return 0, errors.New("the GUID partition table is damaged")
	}
	backup := sectors - 1 - (h.entriesSize()+sector-1)/sector // where its entries will begin
	end := backup / alignTo * alignTo
	grown, err := growEntry(entries, int(h.u32(gptEntrySize)), start, end)
	if err != nil || grown == 0 {
		return 0, err
	}
	return grown, writeGPT(disk, mbr, h, entries, sectors, backup)
}

// growEntry has the entry of the partition that begins at start end where end is. It returns its size; 0: nothing was
// changed.
func growEntry(entries []byte, size int, start, end uint64) (uint64, error) {
	var mine gpt
	for at := 0; at+size <= len(entries); at += size {
		e := gpt(entries[at : at+size])
		switch first := e.u64(32); {
		case [16]byte(e[:16]) == [16]byte{}:
		case first == start:
			mine = e
		case first > start:
			return 0, nil
		}
	}
	switch {
	case mine == nil:
		return 0, fmt.Errorf("no partition begins at sector %d", start)
	case mine.u64(40)+1 >= end:
		return 0, nil
	}
	mine.set64(40, end-1) // the last sector that is its own
	return end - start, nil
}

// writeGPT writes the table at the end of the disk first: a guest that dies in between has one that is whole.
func writeGPT(disk table, mbr []byte, h gpt, entries []byte, sectors, backup uint64) error {
	first := h.u64(gptEntries)
	h.set64(gptLast, backup-1)
	h.set32(gptCRCAll, crc32.ChecksumIEEE(entries))
	write := func(self, other, at uint64) error {
		h.set64(gptSelf, self)
		h.set64(gptOther, other)
		h.set64(gptEntries, at)
		h.set32(gptCRC, headerSum(h))
		_, err := disk.WriteAt(entries, int64(at)*sector)
		if err == nil {
			_, err = disk.WriteAt(h, int64(self)*sector)
		}
		return err
	}
	if err := write(sectors-1, 1, backup); err != nil {
		return err
	}
	if err := write(1, sectors-1, first); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(mbr[mbrEntries+12:], uint32(min(sectors-1, math.MaxUint32)))
	_, err := disk.WriteAt(mbr, 0)
	return err
}
