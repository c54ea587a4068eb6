// ns-3's TCP sender as it is, and with single things of it made to follow the RFCs.
//
// Each name in a list mends one thing, and leaves the rest to ns-3; `all` mends everything:
//
//   flight    without SACK, ns-3 takes each duplicate ACK for a segment that has left the network, and keeps counting them
//             when reordering or a recovery is over: more is sent than the window holds (RFC 5681 4.3), and a segment
//             that was counted by mistake is sent again at once. Mended, they are forgotten then (RFC 6582 3.2 step 3).
//   recover   ns-3 starts a recovery with the ACK that has ended the last one, and lets a segment go for every duplicate
//             ACK that starts none. Mended, more than `recover` must be acknowledged (RFC 6582 3.2 step 2), and two go
//             (RFC 3042).
//   ssthresh  ns-3 reckons half of what it thinks is in flight at the third duplicate ACK, three segments fewer than
//             are. Mended, half of what is unacknowledged, without what limited transmit has sent (RFC 5681 3.2 step 2).
//   exit      ns-3's window grows by the ACK that ends a recovery, too. Mended, it is the threshold then (RFC 6582 3.2
//             step 3).
//   partial   an ACK in a recovery of more than duplicate ACKs have told of leaves ns-3's window as it is. Mended, the
//             window is smaller by what was acknowledged, but for one segment (RFC 6582 3.2 step 3).
//   timer     ns-3 restarts its timer at the first partial ACK alone (RFC 6582 3.2 step 3). Here it does at each, as the
//             simulator does (the "slow-but-steady" variant of section 4): no mistake of ns-3.
//   growth    ns-3's NewReno grows by ACKs, whatever they acknowledge (RFC 5681 3.1), and its DCTCP by whole segments, as
//             Linux does. Here both grow by segments acknowledged and fractions, as the simulator does (RFC 3465 without
//             its limit): no mistake of any.
//   loss      ns-3's DCTCP answers a loss by its share of marks. Mended, it halves the window (RFC 8257 3.5).
//   limited   after a timeout ns-3 takes no note of duplicate ACKs until all that was in flight is acknowledged. Here the first
//             two let a segment go each, as the simulator has it (RFC 3042 speaks of no timeout): no mistake of any.
//   port      not of senders: a port of ns-3 holds a packet more than its buffer, in its device. Mended, that one counts.
//   cwr       after a mark ns-3 counts no duplicate ACKs for a round trip, and a mark ends a recovery, so that losses wait
//             for a timeout. Mended, both go on (RFC 3168 6.1.2).

#pragma once

#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"

// What senders mend, and ports.
struct Mends {
  bool flight = false, recover = false, ssthresh = false, exit = false, partial = false, timer = false, growth = false,
       loss = false, limited = false, port = false, cwr = false;

  // Of a list with commas, or `all`. Throws a name that there is not.
  explicit Mends(const std::string &list) {
    const std::map<std::string, bool *> known{
        {"flight", &flight}, {"recover", &recover}, {"ssthresh", &ssthresh}, {"exit", &exit}, {"partial", &partial},
        {"timer", &timer},   {"growth", &growth},   {"loss", &loss},         {"limited", &limited}, {"port", &port},
        {"cwr", &cwr}};
    std::istringstream names(list);
    for (std::string name; std::getline(names, name, ',');) {
      if (name == "all") {
        for (const auto &it : known) *it.second = true;
        continue;
      }
      const auto found = known.find(name);
      if (found == known.end()) throw name;
      *found->second = true;
    }
  }
};

// The ACK or timeout that a sender answers at this moment.
struct Answered {
  // It tells of a loss or of nothing, and not of a mark.
  bool may_be_loss = false;
  // Bytes in flight before limited transmit.
  uint32_t flight = 0;
  // It ends a recovery.
  bool ends_recovery = false;
};

// ns-3's congestion control, but for what `loss`, `ssthresh`, `exit` and `growth` mend.
template <class Control>
class Reduction : public Control {
 public:
  void Watch(const Answered *by, const Mends *chosen, bool halves) {
    answered = by;
    mends = chosen;
    halves_at_loss = halves;
  }

  uint32_t GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> state, uint32_t in_flight) override {
    if (!answered->may_be_loss || !halves_at_loss) return Control::GetSsThresh(state, in_flight);
    return std::max(2 * state->m_segmentSize, (mends->ssthresh ? answered->flight : in_flight) / 2);
  }

  void IncreaseWindow(ns3::Ptr<ns3::TcpSocketState> state, uint32_t segments) override {
    if (mends->exit && answered->ends_recovery) return;
    if (!mends->growth) return Control::IncreaseWindow(state, segments);
    const uint32_t full = state->m_segmentSize;
    for (; segments > 0; segments--) {
      const uint32_t window = state->m_cWnd;
      state->m_cWnd = window + (window < state->m_ssThresh ? full : std::max(1u, full * full / window));
    }
  }

 private:
  const Answered *answered = nullptr;
  const Mends *mends = nullptr;
  bool halves_at_loss = false;
};

class Sender : public ns3::TcpSocketBase {
 public:
  static ns3::TypeId GetTypeId() {
    static ns3::TypeId id = ns3::TypeId("Sender").SetParent<ns3::TcpSocketBase>();
    return id;
  }

  // A sender of a host. It prints what it does to `trace`, if there is one.
  static ns3::Ptr<Sender> Create(ns3::Ptr<ns3::Node> host, bool is_dctcp, const Mends &mends, std::ostream *trace) {
    auto tcp = host->GetObject<ns3::TcpL4Protocol>();
    auto sender = ns3::CreateObject<Sender>();
    sender->mends = &mends;
    sender->trace = trace;
    sender->SetNode(host);
    sender->SetTcp(tcp);
    sender->SetRtt(ns3::CreateObject<ns3::RttMeanDeviation>());
    sender->SetCongestionControlAlgorithm(is_dctcp ? sender->Control<ns3::TcpDctcp>(mends.loss)
                                                   : sender->Control<ns3::TcpNewReno>(true));
    sender->SetRecoveryAlgorithm(ns3::CreateObject<ns3::TcpClassicRecovery>());
    tcp->AddSocket(sender);
    return sender;
  }

  uint32_t Timeouts() const { return timeouts; }

 private:
  using State = ns3::TcpSocketState;
  using Number = ns3::SequenceNumber32;

  template <class Base>
  ns3::Ptr<ns3::TcpCongestionOps> Control(bool halves) {
    auto control = ns3::CreateObject<Reduction<Base>>();
    control->Watch(&answered, mends, halves);
    return control;
  }

  void ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader &header) override {
    const Number ack = header.GetAckNumber(), una = m_txBuffer->HeadSequence();
    const bool advances = ack > una, repeats = ack == una && ack < m_tcb->m_highTxMark;
    const bool is_marked = header.GetFlags() & ns3::TcpHeader::ECE;
    Print("ack", ack, is_marked);
    if (advances || !Is(State::CA_LOSS)) duplicates_after_timeout = 0;
    if (repeats && Is(State::CA_LOSS)) duplicates_after_timeout = std::min(duplicates_after_timeout + 1, 2);
    if (repeats && m_dupAckCount == 0) sent_before_duplicates = m_tcb->m_highTxMark;
    if (mends->flight && !m_sackEnabled && advances &&
        (Is(State::CA_DISORDER) || (Is(State::CA_RECOVERY) && ack >= m_recover)))
      m_txBuffer->ResetRenoSack();
    if (mends->recover && !m_sackEnabled) {
      const bool may_recover = recover == Number(0) || una > recover;
      m_retxThresh = may_recover ? 3 : UINT32_MAX;
      m_limitedTx = m_dupAckCount < 2;
    }
    // A mark in a recovery, or in the round trip of the last one that reordering has hidden, counts and reduces nothing.
    counts_mark = mends->cwr && is_marked &&
                  ((advances && (Is(State::CA_RECOVERY) || Is(State::CA_LOSS))) || (!Is(State::CA_CWR) && ack <= reduced_until));
    if (mends->cwr && repeats && Is(State::CA_CWR)) m_tcb->m_congState = State::CA_OPEN;
    if (!counts_mark) return TcpSocketBase::ReceivedAck(packet, header);
    ns3::TcpHeader unmarked = header;
    unmarked.SetFlags(header.GetFlags() & ~ns3::TcpHeader::ECE);
    TcpSocketBase::ReceivedAck(packet, unmarked);
  }

  void ProcessAck(const Number &ack, bool has_news, uint32_t delivered, const Number &una) override {
    const bool was_recovering = Is(State::CA_RECOVERY), was_disordered = Is(State::CA_DISORDER);
    if (Is(State::CA_CWR)) reduced_until = m_recover;
    if (counts_mark) m_tcb->m_ecnState = State::ECN_ECE_RCVD;
    const uint32_t flight = sent_before_duplicates > una ? sent_before_duplicates - una : 0;
    answered = {true, flight, was_recovering && ack >= m_recover};
    TcpSocketBase::ProcessAck(ack, has_news, delivered, una);
    answered = {};
    const int32_t full = m_tcb->m_segmentSize, acked = ack - una;
    if (Is(State::CA_RECOVERY)) {
      if (!was_recovering) recover = m_recover;
      // The window is never smaller than a segment.
      const int32_t by = acked > 0 ? full - acked : full;
      inflation = was_recovering ? std::max<int32_t>(inflation + by, full - int32_t(m_tcb->m_cWnd)) : 3 * full;
    }
    // Reordering is over, the round trip since the last mark is not.
    if (mends->cwr && was_disordered && Is(State::CA_OPEN) && ack <= reduced_until) {
      m_tcb->m_congState = State::CA_CWR;
      m_recover = reduced_until;
    }
  }

  void ReTxTimeout() override {
    Print("timeout", m_txBuffer->HeadSequence(), false);
    if (UnAckDataCount() > 0) timeouts++;
    duplicates_after_timeout = 0;
    answered = {true, UnAckDataCount(), false};
    TcpSocketBase::ReTxTimeout();
    answered = {};
    recover = m_recover;
  }

  void NewAck(const Number &ack, bool restarts_timer) override {
    TcpSocketBase::NewAck(ack, restarts_timer || mends->timer);
  }

  uint32_t AvailableWindow() const override {
    if (mends->limited && !m_sackEnabled && Is(State::CA_LOSS)) {
      const int64_t more = int64_t(duplicates_after_timeout) * m_tcb->m_segmentSize;
      return std::max<int64_t>(int64_t(Window()) + more - BytesInFlight(), 0);
    }
    if (!mends->partial || m_sackEnabled || !Is(State::CA_RECOVERY)) return TcpSocketBase::AvailableWindow();
    const int64_t open = int64_t(m_tcb->m_cWnd) + inflation - UnAckDataCount();
    return std::max<int64_t>(open, 0);
  }

  uint32_t SendDataPacket(Number number, uint32_t most, bool with_ack) override {
    Print("sent", number, false);
    return TcpSocketBase::SendDataPacket(number, most, with_ack);
  }

  bool Is(State::TcpCongState_t state) const { return m_tcb->m_congState == state; }

  // What happens, to which segment, in what state before it: window and threshold in bytes.
  void Print(const char *event, Number number, bool is_marked) const {
    if (!trace) return;
    *trace << "trace " << event << ' ' << ns3::Simulator::Now().GetNanoSeconds() << ' ' << number.GetValue() << ' '
           << is_marked << ' ' << m_tcb->m_cWnd << ' ' << m_tcb->m_ssThresh << ' '
           << State::TcpCongStateName[m_tcb->m_congState] << '\n';
  }

  const Mends *mends = nullptr;
  std::ostream *trace = nullptr;
  Answered answered;
  // The next to be sent at the first duplicate ACK, at the last recovery or timeout, and at the last mark.
  Number sent_before_duplicates{0}, recover{0}, reduced_until{0};
  // By what a recovery has widened the window, in bytes.
  int32_t inflation = 0;
  bool counts_mark = false;
  int duplicates_after_timeout = 0;
  uint32_t timeouts = 0;
};
