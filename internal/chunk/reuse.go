package chunk

// Found is a chunk that a file which is here has.
type Found struct {
	Chunk int   // of the wanted layout
	File  int   // of those that are here
	At    int64 // in that file
}

// Reuse finds what the files that are here, by their indexes, have of a wanted one, in the order in which it lies in
// them. It counts on nothing but what the indexes say: who copies a chunk checks it.
func Reuse(l *Layout, here []*Index) []Found {
	wanted := make(map[Sum]int, len(l.Chunks))
	for _, piece := range l.Pieces {
		for _, i := range piece {
			wanted[l.Chunks[i].Sum] = i
		}
	}
	var found []Found
	for n, x := range here {
		var at int64
		for _, c := range x.Chunks {
			if i, ok := wanted[c.Sum]; ok && !c.Zeros() && l.Chunks[i].Size == c.Size {
				found = append(found, Found{Chunk: i, File: n, At: at})
				delete(wanted, c.Sum)
			}
			at += int64(c.Size)
		}
	}
	return found
}
