package server

// RefuseStream takes a host's word why it brings no stream, so that nobody waits for it.
func (s *Server) RefuseStream(host, id string, why error) error {
	return s.streams.refuse(host, id, why)
}
