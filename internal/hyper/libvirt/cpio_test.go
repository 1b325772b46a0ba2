package libvirt_test

import (
	"bytes"
	"fmt"
)

// cpioFile is one entry of an initramfs. Mode holds the type bits too, as in stat(2).
type cpioFile struct {
	Name string
	Mode uint32
	Data []byte
}

// packCPIO packs files as an initramfs, in the "newc" format of the kernel's initramfs documentation
// (Documentation/driver-api/early-userspace/buffer-format.rst). Directories come before what is in them.
func packCPIO(files []cpioFile) []byte {
	var b bytes.Buffer
	pad := func() { b.Write(make([]byte, -b.Len()&3)) }
	for i, f := range append(files, cpioFile{Name: "TRAILER!!!"}) {
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			i+1, f.Mode, 0, 0, 1, 0, len(f.Data), 0, 0, 0, 0, len(f.Name)+1, 0)
		b.WriteString(f.Name + "\x00")
		pad()
		b.Write(f.Data)
		pad()
	}
	return b.Bytes()
}
