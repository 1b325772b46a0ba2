package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// garbage takes the ports of the VM from grange-guest, as root of a hostile VM can, and writes to the host what no
// guest does: frames as they should be, with what they should not say, and bytes that are no frames.
func garbage(seed uint64) error {
	ports, err := portsOfInit()
	if err != nil {
		return err
	}
	if len(ports) == 0 {
		return errors.New("grange-guest has no port open")
	}
	random := rand.New(rand.NewPCG(seed, 0))
	fmt.Println("garbage")
	for range 3000 {
		port := ports[random.IntN(len(ports))]
		if _, err := unix.Write(port, frame(random)); err != nil {
			return err
		}
	}
	return nil
}

// portsOfInit are descriptors of the ports that the first process has open.
func portsOfInit() (ports []int, err error) {
	pid, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return nil, err
	}
	links, err := filepath.Glob("/proc/1/fd/*")
	for _, link := range links {
		to, _ := os.Readlink(link)
		number, _ := strconv.Atoi(filepath.Base(link))
		if !strings.HasPrefix(to, "/dev/vport") {
			continue
		}
		fd, err := unix.PidfdGetfd(pid, number, 0)
		if err != nil {
			return nil, fmt.Errorf("take %s: %w", to, err)
		}
		ports = append(ports, fd)
	}
	return ports, err
}

// frame is one of the session between grange-guest and its host (internal/guest/frame.go), or nearly one.
func frame(random *rand.Rand) []byte {
	payload := request(random)
	head := []byte("gR\xa5\x1e")
	head = append(head, byte(random.IntN(10)), byte(random.IntN(8)+random.IntN(2)*random.IntN(248)), 0, 0)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(payload)))
	head = binary.LittleEndian.AppendUint64(head, random.Uint64()>>random.IntN(65))
	sum := crc32.ChecksumIEEE(head)
	all := binary.LittleEndian.AppendUint32(append(head, payload...), sum)
	if random.IntN(4) == 0 {
		all[random.IntN(len(all))] ^= byte(1 + random.IntN(255))
	}
	return all[:len(all)-random.IntN(2)*random.IntN(len(all))]
}

// request is a request of FUSE: of any operation, node and owner, for names that lead out.
func request(random *rand.Rand) []byte {
	names := []string{"..", "../outside/secret", "/etc/passwd", ".", "", "a/b", "proc/self/root", "new", "\xff"}
	body := names[random.IntN(len(names))] + "\x00" + names[random.IntN(len(names))] + "\x00"
	body += strings.Repeat("x", random.IntN(200))
	var head []byte
	head = binary.LittleEndian.AppendUint32(head, uint32(40+len(body))<<(random.IntN(8)/7*random.IntN(16)))
	head = binary.LittleEndian.AppendUint32(head, uint32(random.IntN(55)))
	for range 2 { // its number, the node
		head = binary.LittleEndian.AppendUint64(head, random.Uint64()>>random.IntN(65))
	}
	for range 4 { // user, group, process, padding
		head = binary.LittleEndian.AppendUint32(head, 0)
	}
	return append(head, body...)
}
