# device,block,bytes,op,seconds
0,2048,8192,w,0.5
# another
1,1,512,T,0.55
0,2056,4096,R,0.6
