// The fabric of `netsim` with two leaves and one spine in ns-3, for the flows of a file.
//
//   dctcp HOSTS_PER_LEAF GBPS DELAY_US BUFFER_PACKETS MARK_PACKETS FLOWS
//
// A line of FLOWS is a flow: from, to, bytes, start in ns. Prints a line a flow, its completion
// time in ns, from the moment when its connection stands to the arrival of its last byte; then
// `seconds`, the processor time of the run.

#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

struct Flow {
  unsigned from, to;
  uint64_t bytes, start_ns;
  uint64_t sent = 0, arrived = 0;
  Time begin, end;
  Ptr<Socket> listener, sender;
};

void Fill(Flow *flow, Ptr<Socket> socket, uint32_t) {
  while (flow->sent < flow->bytes) {
    auto room = std::min<uint64_t>(socket->GetTxAvailable(), flow->bytes - flow->sent);
    if (room == 0) return;
    int taken = socket->Send(Create<Packet>(room));
    if (taken <= 0) return;
    flow->sent += taken;
  }
}

void Connected(Flow *flow, Ptr<Socket> socket) {
  flow->begin = Simulator::Now();
  Fill(flow, socket, 0);
}

void Receive(Flow *flow, Ptr<Socket> socket) {
  while (Ptr<Packet> packet = socket->Recv()) flow->arrived += packet->GetSize();
  if (flow->arrived == flow->bytes) flow->end = Simulator::Now();
}

void Accept(Flow *flow, Ptr<Socket> socket, const Address &) {
  socket->SetRecvCallback(MakeBoundCallback(&Receive, flow));
}

void Start(Flow *flow, Ptr<Node> node, Address to) {
  flow->sender = Socket::CreateSocket(node, TcpSocketFactory::GetTypeId());
  flow->sender->SetConnectCallback(MakeBoundCallback(&Connected, flow), MakeNullCallback<void, Ptr<Socket>>());
  flow->sender->SetSendCallback(MakeBoundCallback(&Fill, flow));
  flow->sender->Bind();
  flow->sender->Connect(to);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 7) {
    std::cerr << "usage: dctcp HOSTS_PER_LEAF GBPS DELAY_US BUFFER_PACKETS MARK_PACKETS FLOWS\n";
    return 2;
  }
  const unsigned hosts_per_leaf = std::stoul(argv[1]);
  const std::string rate = std::string(argv[2]) + "Gbps", delay = std::string(argv[3]) + "us";
  const uint32_t buffer = std::stoul(argv[4]);
  const double mark = std::stod(argv[5]);

  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpDctcp::GetTypeId()));
  Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(TcpClassicRecovery::GetTypeId()));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1460));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(6 << 20));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));
  Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
  Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(false));
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(10)));
  Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MicroSeconds(1)));
  Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
  Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
  Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(1500));
  Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1.0));
  Config::SetDefault("ns3::RedQueueDisc::MinTh", DoubleValue(mark));
  Config::SetDefault("ns3::RedQueueDisc::MaxTh", DoubleValue(mark));
  Config::SetDefault("ns3::RedQueueDisc::MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, buffer)));

  NodeContainer hosts(2 * hosts_per_leaf), switches(3);  // two leaves and a spine
  InternetStackHelper internet;
  internet.Install(hosts);
  internet.Install(switches);
  PointToPointHelper link;
  link.SetDeviceAttribute("DataRate", StringValue(rate));
  link.SetChannelAttribute("Delay", StringValue(delay));
  link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
  TrafficControlHelper marking, patient;
  marking.SetRootQueueDisc("ns3::RedQueueDisc");
  patient.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue("100000p"));
  Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
  std::vector<Ipv4Address> address(hosts.GetN());
  for (unsigned host = 0; host < hosts.GetN(); host++) {
    auto devices = link.Install(hosts.Get(host), switches.Get(host / hosts_per_leaf));
    patient.Install(devices.Get(0));
    marking.Install(devices.Get(1));
    address[host] = addresses.Assign(devices).GetAddress(0);
    addresses.NewNetwork();
  }
  for (unsigned leaf = 0; leaf < 2; leaf++) {
    auto devices = link.Install(switches.Get(leaf), switches.Get(2));
    marking.Install(devices);
    addresses.Assign(devices);
    addresses.NewNetwork();
  }
  Ipv4GlobalRoutingHelper::PopulateRoutingTables();

  std::ifstream file(argv[6]);
  std::vector<std::unique_ptr<Flow>> flows;
  for (Flow flow; file >> flow.from >> flow.to >> flow.bytes >> flow.start_ns;)
    flows.push_back(std::make_unique<Flow>(flow));
  uint16_t port = 1024;
  for (auto &it : flows) {
    Flow *flow = it.get();
    flow->listener = Socket::CreateSocket(hosts.Get(flow->to), TcpSocketFactory::GetTypeId());
    flow->listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    flow->listener->Listen();
    flow->listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address &>(),
                                      MakeBoundCallback(&Accept, flow));
    Simulator::Schedule(NanoSeconds(flow->start_ns), &Start, flow, hosts.Get(flow->from),
                        Address(InetSocketAddress(address[flow->to], port++)));
  }
  const std::clock_t before = std::clock();
  Simulator::Stop(Seconds(100));
  Simulator::Run();
  const double seconds = double(std::clock() - before) / CLOCKS_PER_SEC;
  for (auto &flow : flows) {
    if (flow->end.IsZero()) {
      std::cerr << "a flow of " << flow->bytes << " bytes did not arrive\n";
      return 1;
    }
    std::cout << (flow->end - flow->begin).GetNanoSeconds() << "\n";
  }
  std::cout << "seconds " << seconds << "\n";
  Simulator::Destroy();
}
